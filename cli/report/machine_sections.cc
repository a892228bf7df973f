// What the result rests on: the links' own speed, the proof, the machine, the claims, and how to repeat it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/report/chart.h"
#include "cli/report/sections.h"
#include "cli/report/wording.h"
#include "cli/topology_json.h"

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

Tone tone_of(ClaimVerdict verdict) {
  return verdict == ClaimVerdict::reproduced       ? Tone::good
         : verdict == ClaimVerdict::not_reproduced ? Tone::bad
                                                   : Tone::neutral;
}

// With every option that decides the figures.
std::string command_of(const CaseFigures& figures) {
  std::string command =
      fmt::format("lockstep compare {} {} {},{} --ranks {}", figures.model, figures.emulated ? "--emulate" : "--links",
                  figures.arms[0].link, figures.arms[1].link, figures.ranks);
  if (figures.emulated) command += fmt::format(" --slow-motion {}", figures.slow_motion);
  if (!figures.precision.empty()) command += " --precision " + figures.precision;
  if (figures.deterministic) command += " --deterministic";
  if (!figures.on_gpus && figures.threads > 0) command += fmt::format(" --threads {}", figures.threads);
  if (figures.repeats > 0) command += fmt::format(" --repeats {}", figures.repeats);
  if (figures.steps > 0) command += fmt::format(" --steps {} --warmup {}", figures.steps, figures.warmup);
  if (figures.options.is_object()) {
    for (const auto& [name, value] : figures.options.items()) {
      if (value.is_string()) command += fmt::format(" --{} {}", name, value.get<std::string>());
      if (value.is_number()) command += fmt::format(" --{} {}", name, value.dump());
      if (value == true) command += fmt::format(" --{}", name);
    }
  }
  return command;
}

std::string pcie_text(const PcieLink& link) {
  return link.generation > 0 ? fmt::format("{} x{}", link.generation, link.width) : kNotMeasured;
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
  blocks.push_back(Figure{.title = fmt::format("All-reduce by size, {} ranks", figures.ranks),
                          .alternative = alternative,
                          .wide = line_chart(alternative, chart, kWideChart),
                          .narrow = line_chart(alternative, chart, kNarrowChart),
                          .table = bandwidth_table(figures)});
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

void add_proof(Blocks& blocks, const Cases& cases) {
  blocks.push_back(Heading{"Proof"});
  if (cases.front()->emulated) {
    blocks.push_back(Paragraph{"None: no emulated link carries anything, so there are no bytes to count."});
    return;
  }
  blocks.push_back(
      Paragraph{"The GPUs count the bytes on their links. A mode is proven where, before the first step, all-reduces "
                "of a known size "
                "moved the right bytes over the right link, and the training did as well."});
  Table bytes{.columns = {{"Link, GPU"},
                          {"NVLink out", true},
                          {"NVLink in", true},
                          {"PCIe out", true},
                          {"PCIe in", true},
                          {"Expected", true}}};
  Facts facts;
  for (const CaseFigures* figures : cases) {
    const std::string of = cases.size() > 1 ? ", " + describe_training(*figures) : "";
    for (const ArmFigures& arm : figures->arms) {
      facts.rows.emplace_back(link_name(arm, false) + of,
                              arm.proof + (arm.proof_reason.empty() ? "" : ": " + arm.proof_reason));
      for (std::size_t i = 0; i < arm.probe.size(); ++i) {
        const CountedBytes& gpu = arm.probe[i];
        bytes.rows.push_back({fmt::format("{}, {}{}", link_name(arm, false), i, of), gpu.nvlink_sent,
                              gpu.nvlink_received, gpu.pcie_sent, gpu.pcie_received,
                              fmt::format("{:.2f} GB", arm.probe_expected_bytes / 1e9)});
      }
    }
  }
  for (const ArmFigures& arm : cases.front()->arms) {  // the same in all
    std::string set;
    for (const auto& [name, value] : arm.variables) set += fmt::format("{}{}={}", set.empty() ? "" : " ", name, value);
    if (!set.empty()) facts.rows.emplace_back("NCCL's variables, " + link_name(arm, false), set);
  }
  blocks.push_back(std::move(facts));
  if (bytes.rows.empty()) return;
  bytes.caption = "Bytes that each GPU counted in the probe";
  blocks.push_back(std::move(bytes));
}

void add_machine(Blocks& blocks, const CompareFile& file, const Cases& cases) {
  blocks.push_back(Heading{"Machine"});
  const Topology& topology = file.topology;
  Facts facts;
  const auto add = [&](std::string name, std::string value) {
    if (!value.empty()) facts.rows.push_back({std::move(name), std::move(value)});
  };
  const CaseFigures& figures = *cases.front();
  add("Ranks", fmt::format("{} {}", figures.ranks, figures.on_gpus ? "GPUs" : "CPU ranks"));
  add("Device", figures.device_name);
  add("Processor", file.processor.empty() || !file.cores ? file.processor
                                                         : fmt::format("{}, {} cores", file.processor, *file.cores));
  add("Driver", topology.driver);
  std::string versions = file.version.empty() ? "" : "Lockstep " + file.version;
  for (const auto& [name, version] : file.versions) {
    if (!version.empty()) versions += fmt::format(", {} {}", name, version);
  }
  add("Versions", versions);
  add("Virtual machine", topology.virtual_machine);
  add("Container", topology.container);
  for (const GpuPair& pair : topology.pairs) add("Pair", describe_pair(pair));
  blocks.push_back(std::move(facts));
  if (!topology.gpus.empty()) {
    Table gpus{.columns = {{"GPU"}, {"Name"}, {"Bus id"}, {"NVLinks", true}, {"PCIe now, at most", true}}};
    for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
      const GpuNode& gpu = topology.gpus[i];
      gpus.rows.push_back({std::to_string(i), gpu.name, gpu.bus_id,
                           fmt::format("{} of {} active", gpu.active_nvlinks, gpu.nvlinks),
                           fmt::format("{}, {}", pcie_text(gpu.pcie_now), pcie_text(gpu.pcie_most))});
    }
    blocks.push_back(std::move(gpus));
  }
  for (const TopologyFinding& finding : topology.findings) {
    if (finding.kind == TopologyFinding::Kind::note) continue;
    blocks.push_back(Notice{fmt::format("{}: {}{}{}", kind_name(finding.kind), finding.what,
                                        finding.remedy.empty() ? "" : ". What to do: ", finding.remedy)});
  }
}

void add_claims(Blocks& blocks, const CompareFile& file) {
  blocks.push_back(Heading{"What is said of NVLink"});
  blocks.push_back(Paragraph{"Claims that introductions repeat, what is right, and what this machine showed."});
  Cards cards;
  for (const ClaimAnswer& answer : answer_claims(evidence_of(file))) {
    Card card{.chinese = std::string(answer.claim->chinese),
              .english = std::string(answer.claim->english),
              .verdict = fmt::format("{}: {}", claim_verdict_name(answer.verdict), answer.reason),
              .tone = tone_of(answer.verdict)};
    card.lines.emplace_back("Right", answer.claim->right);
    if (!answer.measured.empty()) card.lines.emplace_back("Here", answer.measured);
    card.lines.emplace_back("Source", answer.claim->source);
    cards.cards.push_back(std::move(card));
  }
  blocks.push_back(std::move(cards));
}

void add_repeat(Blocks& blocks, const CompareFile& file, const Cases& cases) {
  blocks.push_back(Heading{"How to repeat it"});
  blocks.push_back(
      Paragraph{file.version.empty()
                    ? "With Lockstep, on the same machine with nothing else running:"
                    : fmt::format("With Lockstep {}, on the same machine with nothing else running:", file.version)});
  std::string commands;
  for (const CaseFigures* figures : cases) commands += command_of(*figures) + "\n";
  blocks.push_back(Code{commands});
  blocks.push_back(
      Paragraph{"Each run is a fresh process with fresh ranks; the arms take turns. Seeds, samples and choices of "
                "algorithms are the "
                "same in all of them. Warm-up steps are outside every figure."});
}

}  // namespace lockstep::cli
