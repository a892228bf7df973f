// Drawings of a report: SVG that takes its colours from the page. Everything is labelled where it is.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {

// From what stands out to what is there to compare with.
enum class Ink { accent, plain, faint };

// Widths in pixels of the two versions that a page holds.
inline constexpr int kWideChart = 720;
inline constexpr int kNarrowChart = 340;

struct ChartBar {
  std::string label;
  std::string value_text;  // at the end of the bar
  double value = 0.0;
  std::optional<double> low, high;
  Ink ink = Ink::plain;
  bool modelled = false;  // drawn as an outline
};

// Horizontal bars that start at 0, each under its label.
std::string bar_chart(const std::string& alternative, const std::vector<ChartBar>& bars, int width);

struct ChartPoint {
  double x = 0.0;
  double y = 0.0;
  std::optional<double> low, high;
};

struct ChartLine {
  std::string label;  // at its end
  std::vector<ChartPoint> points;
  Ink ink = Ink::plain;
  bool modelled = false;  // dashed, and without points
};

struct ChartTick {
  double value = 0.0;
  std::string label;
};

struct LineChart {
  std::vector<ChartLine> lines;
  std::vector<ChartTick> x_ticks, y_ticks;  // they span the chart
  std::string x_title, y_title;
  bool log_y = false;  // the other axis always is
};

std::string line_chart(const std::string& alternative, const LineChart& chart, int width);

struct ChartSpan {
  double begin = 0.0;
  double end = 0.0;
  std::string label;  // inside, where it fits
};

// One step: what was computed, and below it what was under way on the link.
struct TimelineRow {
  std::string title;
  std::vector<ChartSpan> computing, link;
  double computed = 0.0;  // the end of backward: what the link does later is waited for
  double end = 0.0;
  Ink ink = Ink::plain;
};

// All rows over one axis of time, in milliseconds.
std::string timeline_chart(const std::string& alternative, const std::vector<TimelineRow>& rows, int width);

// 1, 2 and 5 times powers of ten from 0 to at least `most`, about `count` of them.
std::vector<double> round_ticks(double most, int count);

}  // namespace lockstep::cli
