#include <fmt/format.h>

#include "cli/report/document.h"

namespace lockstep::cli {
namespace {

// Calm: one accent colour, for what the comparison is about. Nothing is loaded, and the policy in the head forbids it.
constexpr const char* kStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #fbfaf8; --ink: #1c2126; --soft: #5d6670; --line: #e3e0da; --accent: #0a7285; --on-accent: #ffffff;
  --tint: #e6f1f3; --plain: #a9b0b8; --on-plain: #1c2126; --faint: #e9e6e0; --bad: #a4472d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171a; --ink: #e7e9ec; --soft: #9aa4ae; --line: #2c3238; --accent: #56c4d6; --on-accent: #0c2328;
    --tint: #16292e; --plain: #6d7782; --on-plain: #f2f4f6; --faint: #2a3037; --bad: #e39a80;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink); overflow-wrap: break-word;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC", "PingFang SC",
    "Microsoft YaHei", "DejaVu Sans", sans-serif;
}
main { max-width: 768px; margin: 0 auto; padding: 48px 24px 96px; }
h1 { font-size: 30px; line-height: 1.28; font-weight: 650; letter-spacing: -0.01em; margin: 0 0 20px; }
h2 { font-size: 20px; line-height: 1.3; font-weight: 650; margin: 0 0 14px; }
h1 span { font-weight: 400; color: var(--soft); }
section { margin-top: 64px; }
p { margin: 0 0 16px; }
.brand { color: var(--soft); font-size: 14px; margin: 0 0 24px; }
.notice { border-left: 3px solid var(--accent); background: var(--tint); padding: 10px 16px; margin: 0 0 20px; }
dl { display: grid; grid-template-columns: minmax(130px, max-content) 1fr; gap: 6px 24px; margin: 0 0 24px; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
table { width: 100%; border-collapse: collapse; font-size: 15px; margin: 0 0 24px; }
caption { text-align: left; color: var(--soft); padding: 0 0 6px; font-size: 14px; }
th, td { text-align: left; vertical-align: baseline; padding: 8px 16px 8px 0; border-bottom: 1px solid var(--line); font-weight: 400; }
thead th { color: var(--soft); font-size: 13px; vertical-align: bottom; }
tbody th { font-weight: 550; min-width: 6.5em; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
tbody td { overflow-wrap: anywhere; min-width: 4.5em; }
td.number { white-space: nowrap; min-width: 0; }
th:last-child, td:last-child { padding-right: 0; }
figure { margin: 0 0 32px; }
figcaption { font-weight: 550; margin: 0 0 14px; }
svg { display: block; width: 100%; height: auto; font-size: 13px; fill: var(--ink); }
.narrow { display: none; }
details { margin-top: 14px; }
summary { color: var(--soft); font-size: 14px; cursor: pointer; }
details table { margin-top: 10px; }
pre {
  background: var(--tint); border-radius: 6px; padding: 14px 16px; margin: 0 0 20px; white-space: pre-wrap;
  font: 13.5px/1.6 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
.card { border-top: 1px solid var(--line); padding: 18px 0 10px; }
.card p { margin: 0 0 6px; }
.card .english { font-weight: 550; }
.card .chinese { color: var(--soft); }
.card dl { font-size: 15px; margin: 10px 0; grid-template-columns: 96px 1fr; gap: 4px 16px; }
.verdict::before { content: ""; display: inline-block; width: 9px; height: 9px; border-radius: 50%; margin-right: 9px; background: var(--plain); }
.verdict.good::before { background: var(--accent); }
.verdict.bad::before { background: var(--bad); }
.fill.accent, .dot.accent { fill: var(--accent); }
.fill.plain, .dot.plain { fill: var(--plain); }
.fill.faint { fill: var(--faint); }
.outline { fill: none; stroke: var(--plain); stroke-dasharray: 4 3; }
.stroke { fill: none; stroke-width: 2; }
.stroke.accent, .whisker.accent { stroke: var(--accent); }
.stroke.plain, .whisker.plain { stroke: var(--plain); }
.dashed { stroke-dasharray: 5 4; stroke-width: 1.5; }
.whisker { stroke-width: 1.5; }
.interval, .end { stroke: var(--ink); stroke-width: 1.2; }
.grid { stroke: var(--line); }
.waiting { fill: var(--ink); opacity: 0.09; }
.soft { fill: var(--soft); }
.label.accent { fill: var(--accent); font-weight: 600; }
.label.plain { fill: var(--soft); font-weight: 600; }
.label.accent, .label.plain { paint-order: stroke; stroke: var(--page); stroke-width: 4px; stroke-linejoin: round; }
.strong { font-weight: 600; }
.small { font-size: 11px; }
.on-ink { fill: var(--on-plain); }
.accent + .on-ink { fill: var(--on-accent); }
@media (max-width: 640px) {
  main { padding: 32px 20px 64px; }
  h1 { font-size: 24px; }
  section { margin-top: 48px; }
  .wide { display: none; }
  .narrow { display: block; }
  dl, .card dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: 8px; }
  dt { font-size: 14px; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  table, tbody, tr, th, td { display: block; }
  caption { display: block; }
  tbody tr { border-bottom: 1px solid var(--line); padding: 8px 0; }
  tbody th, tbody td, td.number { border: 0; padding: 1px 0; text-align: left; white-space: normal; }
  tbody td { display: flex; gap: 12px; justify-content: space-between; }
  tbody td::before { content: attr(data-label); color: var(--soft); flex: none; max-width: 50%; }
  tbody td:empty { display: none; }
}
@media print { body { background: none; } section { break-inside: avoid; } }
)css";

const char* class_of(Tone tone) { return tone == Tone::good ? " good" : tone == Tone::bad ? " bad" : ""; }

struct Writer {
  std::string text;
  bool in_section = false;

  void operator()(const Heading& heading) {
    if (in_section) text += "</section>\n";
    in_section = true;
    text += fmt::format("<section>\n<h2>{}</h2>\n", escape_html(heading.text));
  }
  void operator()(const Paragraph& paragraph) { text += fmt::format("<p>{}</p>\n", escape_html(paragraph.text)); }
  void operator()(const Notice& notice) {
    text += fmt::format("<p class=\"notice\">{}</p>\n", escape_html(notice.text));
  }
  void operator()(const Facts& facts) { list(facts.rows); }
  void operator()(const Table& table) {
    text += "<table>\n";
    if (!table.caption.empty()) text += fmt::format("<caption>{}</caption>\n", escape_html(table.caption));
    text += "<thead><tr>";
    for (const Table::Column& column : table.columns) {
      text += fmt::format("<th scope=\"col\"{}>{}</th>", number_class(column), escape_html(column.name));
    }
    text += "</tr></thead>\n<tbody>\n";
    for (const auto& row : table.rows) {
      text += fmt::format("<tr><th scope=\"row\">{}</th>", escape_html(row.at(0)));
      for (std::size_t i = 1; i < row.size(); ++i) {
        const Table::Column& column = table.columns.at(i);
        text += fmt::format("<td data-label=\"{}\"{}>{}</td>", escape_html(column.name), number_class(column),
                            escape_html(row[i]));
      }
      text += "</tr>\n";
    }
    text += "</tbody>\n</table>\n";
  }
  void operator()(const Figure& figure) {
    text += fmt::format("<figure>\n<figcaption>{}</figcaption>\n", escape_html(figure.title));
    text += fmt::format("<div class=\"wide\">{}</div>\n<div class=\"narrow\">{}</div>\n", figure.wide, figure.narrow);
    if (!figure.table.columns.empty()) {
      text += "<details><summary>As a table</summary>\n";
      (*this)(figure.table);
      text += "</details>\n";
    }
    text += "</figure>\n";
  }
  void operator()(const Code& code) { text += fmt::format("<pre>{}</pre>\n", escape_html(code.text)); }
  void operator()(const Cards& cards) {
    for (const Card& card : cards.cards) {
      text += fmt::format(
          "<div class=\"card\">\n<p class=\"english\">{}</p>\n<p class=\"chinese\" lang=\"zh-Hans\">{}</p>\n",
          escape_html(card.english), escape_html(card.chinese));
      list(card.lines);
      text += fmt::format("<p class=\"verdict{}\">{}</p>\n</div>\n", class_of(card.tone), escape_html(card.verdict));
    }
  }

 private:
  static const char* number_class(const Table::Column& column) { return column.number ? " class=\"number\"" : ""; }
  void list(const std::vector<std::pair<std::string, std::string>>& rows) {
    text += "<dl>\n";
    for (const auto& [name, value] : rows) {
      text += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape_html(name), escape_html(value));
    }
    text += "</dl>\n";
  }
};

}  // namespace

std::string escape_html(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        // Controls are in no HTML.
        escaped += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return escaped;
}

std::string to_html(const Document& document) {
  Writer writer;
  for (const Block& block : document.blocks) std::visit(writer, block);
  if (writer.in_section) writer.text += "</section>\n";
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src "
      "data:\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n"
      "<p class=\"brand\">Lockstep</p>\n<h1>{} <span>({})</span></h1>\n{}</main>\n</body>\n</html>\n",
      escape_html(document.title), kStyle, escape_html(document.headline), escape_html(document.evidence), writer.text);
}

}  // namespace lockstep::cli
