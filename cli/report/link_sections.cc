// How fast the links are by themselves, and what the same step would take on others.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/report/sections.h"
#include "cli/report/wording.h"

namespace lockstep::cli {
namespace {

const std::vector<SizeTime>& times_of(const ArmFigures& arm) { return arm.sweep.empty() ? arm.model : arm.sweep; }

double power_of_ten(double value, bool up) {
  const double exponent = std::log10(std::max(value, 1e-6));
  return std::pow(10, up ? std::ceil(exponent) : std::floor(exponent));
}

// Four digits, or as many as there are.
std::string figure_text(double value) {
  return value < 10'000 ? fmt::format("{:.4g}", value) : fmt::format("{:.0f}", value);
}

LineChart bandwidth_chart(const CaseFigures& figures) {
  LineChart chart{.x_title = "bytes of an all-reduce", .y_title = "GB/s (bus bandwidth)", .log_y = true};
  double least = 1e9, most = 0;
  std::int64_t smallest = std::int64_t{1} << 50, largest = 1;
  for (const std::size_t i : {1U, 0U}) {
    const ArmFigures& arm = figures.arms[i];
    ChartLine line{.label = link_name(arm, figures.emulated),
                   .ink = i == 0 ? Ink::accent : Ink::plain,
                   .modelled = arm.sweep.empty()};
    for (const SizeTime& time : times_of(arm)) {
      if (time.busbw <= 0) continue;
      line.points.push_back({.x = static_cast<double>(time.bytes), .y = time.busbw});
      least = std::min(least, time.busbw);
      most = std::max(most, time.busbw);
      smallest = std::min(smallest, time.bytes);
      largest = std::max(largest, time.bytes);
    }
    chart.lines.push_back(std::move(line));
  }
  for (std::int64_t bytes = smallest; bytes <= largest; bytes *= 32) {
    chart.x_ticks.push_back({static_cast<double>(bytes), size_text(bytes)});
  }
  if (chart.x_ticks.empty() || chart.x_ticks.back().value < static_cast<double>(largest)) {
    chart.x_ticks.push_back({static_cast<double>(largest), size_text(largest)});
  }
  for (double tick = power_of_ten(least, false); tick < power_of_ten(most, true) * 1.01; tick *= 10) {
    chart.y_ticks.push_back({tick, fmt::format("{:g}", tick)});
  }
  return chart;
}

Table bandwidth_table(const CaseFigures& figures) {
  Table table{.columns = {{"Size"}}};
  std::vector<std::int64_t> sizes;
  for (const ArmFigures& arm : figures.arms) {
    const std::string name = link_name(arm, figures.emulated);
    table.columns.insert(table.columns.end(), {{name + ", us", true}, {name + ", GB/s", true}});
    for (const SizeTime& time : times_of(arm)) sizes.push_back(time.bytes);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (const std::int64_t bytes : sizes) {
    std::vector<std::string> row{size_text(bytes)};
    for (const ArmFigures& arm : figures.arms) {
      const auto& times = times_of(arm);
      const auto time =
          std::find_if(times.begin(), times.end(), [&](const SizeTime& one) { return one.bytes == bytes; });
      row.push_back(time == times.end() ? "" : figure_text(time->us));
      row.push_back(time == times.end() ? "" : figure_text(time->busbw));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

void add_bandwidth(Blocks& blocks, const Cases& cases) {
  const CaseFigures& figures = *cases.front();
  if (std::all_of(figures.arms.begin(), figures.arms.end(), [](const auto& arm) { return times_of(arm).empty(); }))
    return;
  blocks.push_back(Heading{"How fast the links are"});
  const bool measured = !figures.arms[0].sweep.empty() || !figures.arms[1].sweep.empty();
  blocks.push_back(Paragraph{
      measured
          ? "All-reduces on their own, in place, by the conventions of nccl-tests: bus bandwidth is what each rank "
            "sends in a second. Small ones are bound by their start, large ones by the link."
          : "All-reduces by the published constants of the links, without slow motion. Small ones are bound by "
            "their start, large ones by the link."});
  std::string alternative = "Lines of bus bandwidth by size, both axes logarithmic.";
  for (const ArmFigures& arm : figures.arms) {
    if (times_of(arm).empty()) continue;
    alternative += fmt::format(" {}: {} at {}.", link_name(arm, figures.emulated),
                               rate_text(times_of(arm).back().busbw), size_text(times_of(arm).back().bytes));
  }
  const LineChart chart = bandwidth_chart(figures);
  blocks.push_back(drawn(fmt::format("All-reduce by size, {} ranks", figures.ranks), alternative,
                         bandwidth_table(figures),
                         [&](const std::string& text, int width) { return line_chart(text, chart, width); }));
  if (figures.emulated) return;
  for (const ArmFigures& arm : figures.arms) {
    if (!arm.host_to_device_gb_s && !arm.device_to_host_gb_s) continue;
    blocks.push_back(Facts{{{"Copies, host to GPU", rate_text(arm.host_to_device_gb_s)},
                            {"Copies, GPU to host", rate_text(arm.device_to_host_gb_s)}}});
    return;
  }
}

void add_other_links(Blocks& blocks, const CaseFigures& figures) {
  if (figures.modelled.empty()) return;
  blocks.push_back(Heading{"The same step on other links"});
  blocks.push_back(
      Paragraph{"Modelled, not measured: published or measured constants of each link, and this step's own computing "
                "and buckets" +
                std::string(figures.emulated ? ", in the same slow motion." : ".")});
  Table table{
      .columns = {{"Link"}, {"Step, ms", true}, {"Exposed, ms", true}, {"How the bytes travel"}, {"Constants"}}};
  for (const ModelledStep& step : figures.modelled) {
    table.rows.push_back({step.link, ms_figure(step.step_ms), ms_figure(step.exposed_ms), step.path, step.source});
  }
  blocks.push_back(std::move(table));
}

}  // namespace lockstep::cli
