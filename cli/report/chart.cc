#include "cli/report/chart.h"

#include <algorithm>
#include <cmath>

#include "cli/report/svg.h"

namespace lockstep::cli {
namespace {

constexpr double kText = 13;  // as in the page's style sheet

std::string with_ink(std::string_view shape, Ink ink) {
  return std::string(shape) + (ink == Ink::accent ? " accent" : ink == Ink::plain ? " plain" : " faint");
}

double greatest(const std::vector<ChartBar>& bars) {
  double most = 0;
  for (const ChartBar& bar : bars) most = std::max({most, bar.value, bar.high.value_or(0)});
  return most > 0 ? most : 1.0;
}

// From a value to a place, over a whole axis.
struct Scale {
  double first = 0.0, last = 1.0;  // values
  double begin = 0.0, end = 1.0;   // places
  bool logarithmic = false;

  double operator()(double value) const {
    const auto on_axis = [&](double v) { return logarithmic ? std::log10(std::max(v, 1e-12)) : v; };
    const double low = on_axis(first);
    const double high = on_axis(last);
    const double share = high > low ? (on_axis(value) - low) / (high - low) : 0.0;
    return begin + std::clamp(share, 0.0, 1.0) * (end - begin);
  }
};

Scale scale_of(const std::vector<ChartTick>& ticks, double begin, double end, bool logarithmic) {
  if (ticks.empty()) return {.begin = begin, .end = end};
  return {ticks.front().value, ticks.back().value, begin, end, logarithmic};
}

// The place of a line at `place`, which lies between its points.
double height_at(const ChartLine& line, const Scale& x, const Scale& y, double place) {
  for (std::size_t i = line.points.size() - 1; i > 0; --i) {
    const double begin = x(line.points[i - 1].x);
    const double end = x(line.points[i].x);
    if (begin > place || end <= begin) continue;
    const double share = (place - begin) / (end - begin);
    return (1 - share) * y(line.points[i - 1].y) + share * y(line.points[i].y);
  }
  return y(line.points.front().y);
}

// At their ends: the lowest line under itself, the others above.
void label_lines(Svg& svg, const LineChart& chart, const Scale& x, const Scale& y) {
  std::vector<const ChartLine*> lines;
  for (const ChartLine& line : chart.lines) {
    if (!line.points.empty()) lines.push_back(&line);
  }
  const auto end_of = [&](const ChartLine* line) { return y(line->points.back().y); };
  std::sort(lines.begin(), lines.end(), [&](const auto* a, const auto* b) { return end_of(a) < end_of(b); });
  for (const ChartLine* line : lines) {
    const double place = x(line->points.back().x);
    const double begin = height_at(*line, x, y, place - Svg::text_width(line->label, kText));
    const bool under = line == lines.back() && lines.size() > 1 && end_of(line) + 2 * kText < y.begin;
    svg.text(place, under ? std::max(begin, end_of(line)) + kText + 7 : std::min(begin, end_of(line)) - 9, line->label,
             with_ink("label", line->ink), Svg::Anchor::end);
  }
}

void draw_line(Svg& svg, const ChartLine& line, const Scale& x, const Scale& y) {
  std::string points;
  for (const ChartPoint& point : line.points) {
    points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", x(point.x), y(point.y));
  }
  svg.polyline(points, with_ink(line.modelled ? "stroke dashed" : "stroke", line.ink));
  if (line.modelled) return;
  for (const ChartPoint& point : line.points) {
    if (point.low && point.high) {
      svg.line(x(point.x), y(*point.low), x(point.x), y(*point.high), with_ink("whisker", line.ink));
    }
    svg.circle(x(point.x), y(point.y), 2.6, with_ink("dot", line.ink));
  }
}

}  // namespace

std::string bar_chart(const std::string& alternative, const std::vector<ChartBar>& bars, int width) {
  constexpr double kLabel = 18, kThick = 16, kGap = 16;
  Svg svg;
  double reserve = 0;
  for (const ChartBar& bar : bars) reserve = std::max(reserve, Svg::text_width(bar.value_text, kText) + 12);
  const Scale x{.last = greatest(bars), .end = width - reserve};
  double y = 0;
  for (const ChartBar& bar : bars) {
    svg.text(0, y + kText, bar.label, "label");
    y += kLabel;
    const double end = x(bar.value);
    svg.rect(0.5, y, end - 0.5, kThick, with_ink(bar.modelled ? "outline" : "fill", bar.ink), 3);
    double right = end;
    if (bar.low && bar.high) {
      const double middle = y + kThick / 2;
      svg.line(x(*bar.low), middle, x(*bar.high), middle, "interval");
      for (const double edge : {*bar.low, *bar.high}) svg.line(x(edge), middle - 4, x(edge), middle + 4, "interval");
      right = std::max(right, x(*bar.high));
    }
    svg.text(right + 8, y + kThick - 3, bar.value_text, "label strong");
    y += kThick + kGap;
  }
  return svg.finish(alternative, width, std::max(y - kGap + 2, 1.0));
}

std::string line_chart(const std::string& alternative, const LineChart& chart, int width) {
  constexpr double kTop = 24, kBottom = 40;
  const double height = width >= kWideChart ? 340 : 280;
  double left = 0;
  for (const ChartTick& tick : chart.y_ticks) left = std::max(left, Svg::text_width(tick.label, kText) + 8);
  const double right = width - 14.0;
  const Scale x = scale_of(chart.x_ticks, left + 6, right, true);
  const Scale y = scale_of(chart.y_ticks, height - kBottom, kTop + 8, chart.log_y);

  Svg svg;
  svg.text(0, kText, chart.y_title, "soft");
  for (const ChartTick& tick : chart.y_ticks) {
    svg.line(left, y(tick.value), right, y(tick.value), "grid");
    svg.text(left - 6, y(tick.value) + 4, tick.label, "soft", Svg::Anchor::end);
  }
  double taken = -1;  // up to here the axis has labels
  for (const ChartTick& tick : chart.x_ticks) {
    const double half = Svg::text_width(tick.label, kText) / 2;
    const double place = std::min(x(tick.value), width - half);
    if (place - half < taken) continue;
    svg.text(place, height - kBottom + 18, tick.label, "soft", Svg::Anchor::middle);
    taken = place + half + 6;
  }
  svg.text(right, height - 4, chart.x_title, "soft", Svg::Anchor::end);
  for (const ChartLine& line : chart.lines) draw_line(svg, line, x, y);
  label_lines(svg, chart, x, y);
  return svg.finish(alternative, width, height);
}

std::string timeline_chart(const std::string& alternative, const std::vector<TimelineRow>& rows, int width) {
  constexpr double kTitle = 20, kLane = 20, kBetween = 3, kGap = 22, kAxis = 24;
  constexpr double kSmall = 11;
  double most = 0;
  for (const TimelineRow& row : rows) most = std::max(most, row.end);
  const std::vector<double> ticks = round_ticks(most, width >= kWideChart ? 8 : 4);
  const double right = width - 1.0;
  const Scale x{.last = ticks.back(), .end = right};
  const double bottom = static_cast<double>(rows.size()) * (kTitle + 2 * kLane + kBetween + kGap) - kGap + 8;

  Svg svg;
  for (const double tick : ticks) {
    svg.line(x(tick), kTitle, x(tick), bottom, "grid");
    const std::string label = fmt::format("{:g}{}", tick, tick == ticks.back() ? " ms" : "");
    svg.text(x(tick), bottom + 16, label, "soft",
             tick == ticks.front()  ? Svg::Anchor::start
             : tick == ticks.back() ? Svg::Anchor::end
                                    : Svg::Anchor::middle);
  }
  double y = 0;
  for (const TimelineRow& row : rows) {
    svg.text(0, y + kText, row.title, "label strong");
    y += kTitle;
    const auto lane = [&](const std::vector<ChartSpan>& spans, const std::string& classes, const char* text_class) {
      for (const ChartSpan& span : spans) {
        const double begin = x(span.begin);
        const double end = std::max(x(span.end), begin + 1);
        svg.rect(begin, y, end - begin - 0.7, kLane, classes);
        if (Svg::text_width(span.label, kSmall) + 4 > end - begin) continue;
        svg.text((begin + end) / 2, y + kLane - 6, span.label, text_class, Svg::Anchor::middle);
      }
      y += kLane + kBetween;
    };
    lane(row.computing, "fill faint", "inside small");
    if (row.end > row.computed)
      svg.rect(x(row.computed), y - kBetween - kLane, x(row.end) - x(row.computed), 2 * kLane + kBetween, "waiting", 0);
    lane(row.link, with_ink("fill", row.ink), "inside small on-ink");
    svg.line(x(row.end), y - 2 * kLane - 2 * kBetween - 4, x(row.end), y, "end");
    y += kGap - kBetween;
  }
  return svg.finish(alternative, width, bottom + kAxis);
}

std::vector<double> round_ticks(double most, int count) {
  const double rough = std::max(most, 1e-9) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough) step = factor * power;
  }
  std::vector<double> ticks{0};
  while (ticks.back() < most) ticks.push_back(static_cast<double>(ticks.size()) * step);
  if (ticks.size() == 1) ticks.push_back(step);
  return ticks;
}

}  // namespace lockstep::cli
