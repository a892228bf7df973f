// The result, and what it is made of: steps, their buckets, and how both grow.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "cli/report/sections.h"
#include "cli/report/wording.h"
#include "framework/interconnect/link_policy.h"
#include "framework/interconnect/link_proof.h"

namespace lockstep::cli {
namespace {

Ink ink_of(std::size_t arm) { return arm == 0 ? Ink::accent : Ink::plain; }

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.0f} %", 100 * *share) : kNotMeasured;
}

// What this machine's PCIe would do peer-to-peer: no setting selects that between GPUs that NVLink joins.
const ModelledStep* pcie_peer(const CaseFigures& figures, const Topology& topology) {
  int generation = topology.gpus.empty() ? 0 : topology.gpus.front().pcie_most.generation;
  if (figures.emulated) {
    generation = 0;
    for (const ArmFigures& arm : figures.arms) {
      if (arm.link.starts_with("pcie") && arm.link.size() > 4) generation = arm.link[4] - '0';
    }
  }
  const std::string name = fmt::format("pcie{}-p2p", generation);
  const auto found = std::find_if(figures.modelled.begin(), figures.modelled.end(),
                                  [&](const ModelledStep& step) { return step.link == name; });
  return found == figures.modelled.end() ? nullptr : &*found;
}

Table step_table(const CaseFigures& figures, const Topology& topology) {
  Table table{.columns = {{"Link"},
                          {"Step, ms", true},
                          {"95 % interval", true},
                          {"Samples/s", true},
                          {"Exposed, ms", true},
                          {"Hidden", true},
                          {"Predicted, ms", true},
                          {"Proof"}}};
  for (const ArmFigures& arm : figures.arms) {
    const Figured step = arm.step_ms.value_or(Figured{});
    const bool has_interval = step.low && step.high;
    table.rows.push_back({link_name(arm, figures.emulated), arm.step_ms ? ms_figure(step.value) : kNotMeasured,
                          has_interval ? ms_figure(step.low) + "-" + ms_figure(step.high) : kNotMeasured,
                          arm.samples_per_s ? fmt::format("{:.0f}", *arm.samples_per_s) : kNotMeasured,
                          ms_figure(arm.exposed_ms), percent(arm.hidden_share), ms_figure(arm.predicted_ms),
                          arm.proof});
  }
  const ModelledStep* peer = pcie_peer(figures, topology);
  table.rows.push_back({"PCIe peer-to-peer, modelled", "", "", "", peer != nullptr ? ms_figure(peer->exposed_ms) : "",
                        "", peer != nullptr ? ms_figure(peer->step_ms) : "not modelled",
                        peer != nullptr ? "modelled" : ""});
  table.rows.push_back({"all-reduces left out", ms_figure(figures.alone_ms), "", "", "", "", "", ""});
  return table;
}

std::string step_bars(const CaseFigures& figures, const Topology& topology, const std::string& alternative, int width) {
  std::vector<ChartBar> bars;
  for (const std::size_t i : {1U, 0U}) {
    const ArmFigures& arm = figures.arms[i];
    if (!arm.step_ms) continue;
    bars.push_back({.label = link_name(arm, figures.emulated),
                    .value_text = ms_text(arm.step_ms->value),
                    .value = arm.step_ms->value,
                    .low = arm.step_ms->low,
                    .high = arm.step_ms->high,
                    .ink = ink_of(i)});
  }
  if (const ModelledStep* peer = pcie_peer(figures, topology); peer != nullptr) {
    bars.push_back({.label = "PCIe peer-to-peer, modelled",
                    .value_text = ms_text(peer->step_ms),
                    .value = peer->step_ms,
                    .modelled = true});
  }
  if (figures.alone_ms) {
    bars.push_back({.label = "all-reduces left out",
                    .value_text = ms_text(*figures.alone_ms),
                    .value = *figures.alone_ms,
                    .ink = Ink::faint});
  }
  return bar_chart(alternative, bars, width);
}

Figure step_figure(const CaseFigures& figures, const Topology& topology) {
  const std::string training = describe_training(figures);
  std::string alternative = fmt::format("Bars of the time of a step of {}.", training);
  for (const ArmFigures& arm : figures.arms) {
    alternative += fmt::format(" {}: {}.", link_name(arm, figures.emulated),
                               arm.step_ms ? ms_text(arm.step_ms->value) : kNotMeasured);
  }
  return drawn("Time of a step, " + training, alternative, {},
               [&](const std::string& text, int width) { return step_bars(figures, topology, text, width); });
}

TimelineRow timeline_row(const ArmFigures& arm, bool emulated, Ink ink) {
  const StepTimeline& step = *arm.timeline;
  TimelineRow row{.title = fmt::format("{}: {}", link_name(arm, emulated), ms_text(step.step_ms)),
                  .computing = {{0, step.forward_ms, "forward"}, {step.forward_ms, step.backward_ms, "backward"}},
                  .computed = step.backward_ms,
                  .end = step.step_ms,
                  .ink = ink};
  double free_at = 0;  // the link carries one bucket at a time
  for (const BucketTiming& bucket : step.buckets) {
    row.link.push_back({std::max(bucket.launched_ms, free_at), bucket.finished_ms, fmt::format("{}", bucket.bucket)});
    free_at = bucket.finished_ms;
  }
  return row;
}

Table bucket_table(const CaseFigures& figures) {
  Table table{.columns = {{"Bucket"}, {"Size", true}}};
  std::size_t buckets = 0;
  std::vector<const ArmFigures*> arms;
  for (const ArmFigures& arm : figures.arms) {
    if (!arm.timeline) continue;
    arms.push_back(&arm);
    buckets = std::max(buckets, arm.timeline->buckets.size());
    table.columns.push_back({link_name(arm, figures.emulated) + ": ready, ms", true});
    table.columns.push_back({"reduced, ms", true});
  }
  for (std::size_t i = 0; i < buckets; ++i) {
    std::vector<std::string> row{fmt::format("{}", i), ""};
    for (const ArmFigures* arm : arms) {
      const bool has = i < arm->timeline->buckets.size();
      const BucketTiming bucket = has ? arm->timeline->buckets[i] : BucketTiming{};
      if (has) row[1] = size_text(bucket.bytes);
      row.push_back(has ? ms_figure(bucket.ready_ms) : "");
      row.push_back(has ? ms_figure(bucket.finished_ms) : "");
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Cases of one model that differ in the batch, or in the ranks, alone.
enum class Growth { none, batch, ranks };
Growth growth_of(const Cases& cases) {
  std::set<std::string> models;
  std::set<std::int64_t> batches;
  std::set<int> ranks;
  for (const CaseFigures* figures : cases) {
    models.insert(figures->model);
    batches.insert(figures->batch_per_rank);
    ranks.insert(figures->ranks);
  }
  if (models.size() != 1) return Growth::none;
  if (batches.size() == cases.size() && ranks.size() == 1 && cases.size() > 1) return Growth::batch;
  if (ranks.size() == cases.size() && batches.size() == 1 && cases.size() > 1) return Growth::ranks;
  return Growth::none;
}

}  // namespace

void add_result(Blocks& blocks, const CompareFile& file, const Cases& cases) {
  const CaseFigures& first = *cases.front();
  if (file.emulated()) {
    blocks.push_back(
        Notice{fmt::format("Emulated: CPU ranks on links that are not there, in slow motion by a factor of {}. "
                           "Communication takes that many "
                           "times as long as the links' published figures say; nothing here was measured on a GPU.",
                           factor_text(first.slow_motion))});
  }
  for (std::string& doubt : doubts_of(file)) blocks.push_back(Notice{std::move(doubt)});
  if (!first.conclusion.empty()) blocks.push_back(Paragraph{sentence(first.conclusion)});
  for (const ArmFigures& arm : first.arms) {
    if (arm.path == kStagedOverPcie)
      blocks.push_back(Paragraph{fmt::format("The link called {} is {}.", arm.link, kStagedOverPcie)});
  }
  blocks.push_back(step_figure(first, file.topology));
  Facts facts;
  facts.rows.emplace_back("Speed-up",
                          fmt::format("{}, {}", times_text(first.speedup->value), interval_text(*first.speedup)));
  if (first.predicted) facts.rows.emplace_back("Predicted", times_text(*first.predicted) + ", before the first run");
  if (first.bound) {
    facts.rows.emplace_back("At most", times_text(*first.bound) + ", with a link that takes no time (1 + E/C)");
  }
  facts.rows.emplace_back("From",
                          fmt::format("{} runs of each arm in turn, {} timed steps each", first.repeats, first.steps));
  blocks.push_back(std::move(facts));
}

void add_steps(Blocks& blocks, const CompareFile& file, const Cases& cases) {
  blocks.push_back(Heading{"A step"});
  blocks.push_back(Paragraph{
      "Medians over the runs. Exposed is what the all-reduces add to a step beside computing, hidden the share of them "
      "that adds nothing."});
  for (const CaseFigures* figures : cases) {
    if (figures != cases.front() && growth_of(cases) == Growth::none) {
      blocks.push_back(Paragraph{
          fmt::format("{} ({}). {}", headline(*figures), evidence_text(*figures), sentence(figures->conclusion))});
      blocks.push_back(step_figure(*figures, file.topology));
    }
    Table table = step_table(*figures, file.topology);
    if (cases.size() > 1) table.caption = fmt::format("{} ({})", describe_training(*figures), proof_text(*figures));
    blocks.push_back(std::move(table));
  }
}

void add_timelines(Blocks& blocks, const Cases& cases) {
  bool any = false;
  for (const CaseFigures* figures : cases) {
    std::vector<TimelineRow> rows;
    for (const std::size_t i : {1U, 0U}) {
      const ArmFigures& arm = figures->arms[i];
      if (arm.timeline) rows.push_back(timeline_row(arm, figures->emulated, ink_of(i)));
    }
    if (rows.empty()) continue;
    if (!any) {
      blocks.push_back(Heading{"Where the time goes"});
      blocks.push_back(Paragraph{
          "An instrumented step on each link: of each moment the median over a few steps, by the slowest rank. "
          "Above, what is computed; below, the buckets of gradients on the link, by number. What is shaded is "
          "waited for."});
      any = true;
    }
    std::string alternative = fmt::format("Timeline of the buckets of a step of {}.", describe_training(*figures));
    for (const TimelineRow& row : rows) {
      alternative += fmt::format(" {}, of which {} after the end of backward.", row.title,
                                 ms_text(std::max(row.end - row.computed, 0.0)));
    }
    blocks.push_back(drawn("Buckets, " + describe_training(*figures), alternative, bucket_table(*figures),
                           [&](const std::string& text, int width) { return timeline_chart(text, rows, width); }));
    if (growth_of(cases) != Growth::none) break;  // one is enough to see how it works
  }
}

void add_growth(Blocks& blocks, const Cases& cases) {
  const Growth growth = growth_of(cases);
  if (growth == Growth::none) return;
  const bool by_batch = growth == Growth::batch;
  const char* unit = by_batch ? "samples a rank" : "ranks";
  Table table{.columns = {{by_batch ? "Batch" : "Ranks"},
                          {"Speed-up", true},
                          {"95 % interval", true},
                          {"Predicted", true},
                          {"At most", true}}};
  ChartLine measured{.label = "measured", .ink = Ink::accent};
  ChartLine bound{.label = "at most (1 + E/C)", .modelled = true};
  LineChart chart{.x_title = unit, .y_title = "speed-up"};
  double least = 1, most = 1;
  Cases sorted = cases;
  const auto size_of = [&](const CaseFigures* figures) { return by_batch ? figures->batch_per_rank : figures->ranks; };
  std::sort(sorted.begin(), sorted.end(), [&](const auto* a, const auto* b) { return size_of(a) < size_of(b); });
  for (const CaseFigures* figures : sorted) {
    const double x = static_cast<double>(size_of(figures));
    const Figured& speedup = *figures->speedup;
    measured.points.push_back({x, speedup.value, speedup.low, speedup.high});
    least = std::min(least, speedup.low.value_or(speedup.value));
    most = std::max({most, speedup.value, speedup.high.value_or(0)});
    if (figures->bound) bound.points.push_back({.x = x, .y = *figures->bound});
    chart.x_ticks.push_back({x, fmt::format("{}", size_of(figures))});
    table.rows.push_back({fmt::format("{} {}", size_of(figures), unit), times_text(speedup.value), range_text(speedup),
                          figures->predicted ? times_text(*figures->predicted) : kNotMeasured,
                          figures->bound ? times_text(*figures->bound) : kNotMeasured});
  }
  const double most_bound = std::accumulate(bound.points.begin(), bound.points.end(), 0.0,
                                            [](double top, const ChartPoint& point) { return std::max(top, point.y); });
  if (most_bound > 3 * most) bound.points.clear();  // it would leave the measured ones in a corner
  most = bound.points.empty() ? most : std::max(most, most_bound);
  for (const double tick : round_ticks(most, 5)) {
    // From the last round value that lies under all others, and under 1: no gain.
    if (tick <= least && chart.y_ticks.size() == 1) chart.y_ticks.clear();
    chart.y_ticks.push_back({tick, fmt::format("{:g}x", tick)});
  }
  chart.lines = {bound, measured};
  blocks.push_back(Heading{by_batch ? "Where the link starts to matter" : "How it grows with the ranks"});
  blocks.push_back(Paragraph{by_batch ? "The larger the batch, the longer backward can hide the same gradients."
                                      : "The same batch a rank on more of them."});
  const std::string alternative =
      fmt::format("Line of the speed-up by {}: from {} at {} to {} at {}.", unit, times_text(measured.points.front().y),
                  measured.points.front().x, times_text(measured.points.back().y), measured.points.back().x);
  blocks.push_back(drawn(fmt::format("Speed-up by {}", by_batch ? "batch" : "ranks"), alternative, std::move(table),
                         [&](const std::string& text, int width) { return line_chart(text, chart, width); }));
}

}  // namespace lockstep::cli
