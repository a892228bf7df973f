#include <fmt/format.h>

#include <string_view>

#include "cli/printable.h"
#include "cli/report/document.h"

namespace lockstep::cli {
namespace {

// On one line, and with nothing that Markdown or HTML would take for its own.
std::string escape(const std::string& text) {
  std::string escaped;
  for (const char c : printable(text)) {
    if (std::string_view("\\`~*_[]<>|&#").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string line_of(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += fmt::format(" {} |", escape(cell));
  return line + "\n";
}

struct Writer {
  std::string text;

  void operator()(const Heading& heading) { text += fmt::format("## {}\n\n", escape(heading.text)); }
  void operator()(const Paragraph& paragraph) { text += escape(paragraph.text) + "\n\n"; }
  void operator()(const Notice& notice) { text += fmt::format("> **{}**\n\n", escape(notice.text)); }
  void operator()(const Facts& facts) {
    for (const auto& [name, value] : facts.rows) text += fmt::format("- {}: {}\n", escape(name), escape(value));
    text += "\n";
  }
  void operator()(const Table& table) {
    if (!table.caption.empty()) text += fmt::format("**{}**\n\n", escape(table.caption));
    std::vector<std::string> names;
    std::string rule = "|";
    for (const Table::Column& column : table.columns) {
      names.push_back(column.name);
      rule += column.number ? " ---: |" : " --- |";
    }
    text += line_of(names) + rule + "\n";
    for (const auto& row : table.rows) text += line_of(row);
    text += "\n";
  }
  void operator()(const Figure& figure) {
    text += fmt::format("**{}**\n\n{}\n\n", escape(figure.title), escape(figure.alternative));
    if (!figure.table.columns.empty()) (*this)(figure.table);
  }
  void operator()(const Code& code) {
    std::string_view rest = code.text;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      text += fmt::format("    {}\n", printable(std::string(rest.substr(0, end))));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    text += "\n";
  }
  void operator()(const Cards& cards) {
    for (const Card& card : cards.cards) {
      text += fmt::format("- **{}** {}\n", escape(card.english), escape(card.chinese));
      for (const auto& [name, value] : card.lines) text += fmt::format("  - {}: {}\n", escape(name), escape(value));
      text += fmt::format("  - **{}**\n", escape(card.verdict));
    }
    text += "\n";
  }
};

}  // namespace

std::string to_markdown(const Document& document) {
  Writer writer{fmt::format("# {} ({})\n\n", escape(document.headline), escape(document.evidence))};
  for (const Block& block : document.blocks) std::visit(writer, block);
  return writer.text;
}

}  // namespace lockstep::cli
