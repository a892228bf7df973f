// A report before it is HTML or Markdown, so that both say the same.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::cli {

// All text is plain: whoever writes it out escapes it.

struct Heading {
  std::string text;
};

struct Paragraph {
  std::string text;
};

// Something that must not be overlooked.
struct Notice {
  std::string text;
};

struct Facts {
  std::vector<std::pair<std::string, std::string>> rows;  // "Driver", "580.95.05"
};

struct Table {
  struct Column {
    std::string name;
    bool number = false;  // aligned to the right
  };
  std::string caption;
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
};

struct Figure {
  std::string title;
  std::string alternative;   // what a reader who does not see it should know
  std::string wide, narrow;  // SVG, for screens and for phones
  Table table;               // of what it shows; without columns where the document has that table already
};

struct Code {
  std::string text;
};

enum class Tone : std::uint8_t { neutral, good, bad };

// A claim, with what speaks for and against it.
struct Card {
  std::string chinese, english;
  std::string verdict;
  Tone tone = Tone::neutral;
  std::vector<std::pair<std::string, std::string>> lines;
};
struct Cards {
  std::vector<Card> cards;
};

using Block = std::variant<Heading, Paragraph, Notice, Facts, Table, Figure, Code, Cards>;

struct Document {
  std::string title;     // of the window
  std::string headline;  // the result in one sentence
  std::string evidence;  // what follows it in brackets
  std::vector<Block> blocks;
};

// One file that needs no other: no script, no font, no request.
std::string to_html(const Document& document);
std::string to_markdown(const Document& document);

// For text and for the value of an attribute.
std::string escape_html(const std::string& text);

}  // namespace lockstep::cli
