// Writes the few shapes of SVG that charts need. Classes take their colours from the page: accent, plain, soft, grid.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "cli/report/document.h"

namespace lockstep::cli {

class Svg {
 public:
  // A square of that many units in text of `size`: enough for the widest of usual fonts.
  static double text_width(std::string_view text, double size) {
    double letters = 0;  // not the bytes that continue one
    for (const char c : text) letters += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
    return 0.64 * size * letters;
  }

  void rect(double x, double y, double width, double height, std::string_view classes, double radius = 2) {
    body_ += fmt::format(R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="{:.1f}"/>)",
                         classes, x, y, width > 0 ? width : 0.0, height, radius);
  }
  void line(double x1, double y1, double x2, double y2, std::string_view classes) {
    body_ +=
        fmt::format(R"(<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", classes, x1, y1, x2, y2);
  }
  void circle(double x, double y, double radius, std::string_view classes) {
    body_ += fmt::format(R"(<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"/>)", classes, x, y, radius);
  }
  // `points` as in "12.0,3.5 14.0,2.0".
  void polyline(const std::string& points, std::string_view classes) {
    body_ += fmt::format(R"(<polyline class="{}" points="{}"/>)", classes, points);
  }
  enum class Anchor { start, middle, end };
  void text(double x, double y, const std::string& text, std::string_view classes, Anchor anchor = Anchor::start) {
    body_ += fmt::format(R"(<text class="{}" x="{:.1f}" y="{:.1f}"{}>{}</text>)", classes, x, y,
                         anchor == Anchor::start    ? ""
                         : anchor == Anchor::middle ? R"( text-anchor="middle")"
                                                    : R"( text-anchor="end")",
                         escape_html(text));
  }

  std::string finish(const std::string& alternative, double width, double height) const {
    return fmt::format(R"(<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">{}</svg>)", width, height,
                       escape_html(alternative), body_);
  }

 private:
  std::string body_;
};

}  // namespace lockstep::cli
