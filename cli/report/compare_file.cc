#include "cli/report/compare_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/json_value.h"
#include "cli/report/wording.h"
#include "cli/run_verdict.h"
#include "cli/timeline_json.h"
#include "cli/topology_json.h"
#include "framework/core/error.h"
#include "framework/interconnect/link_policy.h"

namespace lockstep::cli {
namespace {

// Of differences, which noise may turn round.
constexpr Range<double> kSigned{-measured_range<double>().most, measured_range<double>().most};

std::optional<Figured> figured_of(const Json& json, const char* value) {
  const auto number = value_if<double>(json, value);
  if (!number) return std::nullopt;
  const Figured figured{*number, value_if<double>(json, "low"), value_if<double>(json, "high")};
  expect(figured.low.value_or(*number) <= *number && *number <= figured.high.value_or(*number),
         "{}: expected it between low and high, got {} between {} and {}", value, *number,
         figured.low.value_or(*number), figured.high.value_or(*number));
  return figured;
}

std::vector<SizeTime> model_times(const Json& rows) {
  std::vector<SizeTime> times;
  for (const Json& row : rows) {
    const SizeTime time{value_of<std::int64_t>(row, "bytes"), value_of<double>(row, "us"),
                        value_of<double>(row, "busbw")};
    if (time.bytes > 0 && time.us > 0) times.push_back(time);
  }
  return times;
}

std::vector<SizeTime> sweep_times(const Json& sweep) {
  std::vector<SizeTime> times;
  for (const Json& row : elements_of(sweep, "rows")) {
    const Json& in_place = entry_of(row, "in_place");
    const SizeTime time{value_of<std::int64_t>(row, "bytes"), value_of<double>(in_place, "us"),
                        value_of<double>(in_place, "busbw")};
    if (time.bytes > 0 && time.us > 0) times.push_back(time);
  }
  std::sort(times.begin(), times.end(), [](const SizeTime& a, const SizeTime& b) { return a.bytes < b.bytes; });
  return times;
}

std::string bytes_text(const Json& count) {
  if (count.is_number())
    return fmt::format("{:.2f} GB", read_value<double>(count, "bytes", measured_range<double>()) / 1e9);
  return value_of<std::string>(count, "not", "not measured");
}

std::vector<CountedBytes> counted_of(const Json& proof) {
  std::vector<CountedBytes> gpus;
  for (const Json& gpu : elements_of(proof, "gpus")) {
    gpus.push_back({bytes_text(entry_of(gpu, "nvlink_sent_bytes")), bytes_text(entry_of(gpu, "nvlink_received_bytes")),
                    bytes_text(entry_of(gpu, "pcie_sent_bytes")), bytes_text(entry_of(gpu, "pcie_received_bytes"))});
  }
  return gpus;
}

std::optional<StepTimeline> step_timeline_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  return timeline_of(json);
}

bool is_proven(const ArmFigures& arm) { return parse_verdict(arm.proof) == Verdict::proven; }

// What an arm says of itself counts where its runs bear it out: all of them, and what their GPUs counted.
void lower_to_runs(ArmFigures& arm, const Json& runs, const CaseFigures& figures) {
  if (!is_proven(arm)) return;
  const Json& proof = runs.empty() ? runs : worst_proof(runs.get_ref<const std::vector<Json>&>());
  if (verdict_of(proof) != Verdict::proven) {
    arm.proof = verdict_name(verdict_of(proof));
    arm.proof_reason = value_of<std::string>(proof, "reason", "not all of its runs in the file are proven");
    return;
  }
  std::string why;
  if (std::cmp_not_equal(runs.size(), figures.repeats)) {
    why = figures.repeats > 0 ? fmt::format("it has {} of {} runs", runs.size(), figures.repeats)
                              : "it does not say how many runs there were";
  }
  for (std::size_t i = 0; i < runs.size() && why.empty(); ++i) {
    why = refutation_of_run(runs[i], arm.link, figures.ranks);
    if (!why.empty()) why = fmt::format("run {}, {}", i + 1, why);
  }
  if (why.empty()) return;
  arm.proof = verdict_name(Verdict::unproven);
  arm.proof_reason = "the file calls it proven, but holds what refutes it: " + why;
}

ArmFigures arm_of(const Json& json, const CaseFigures& figures) {
  ArmFigures arm;
  arm.link = value_of<std::string>(json, "link", "unnamed link");
  arm.path = value_of<std::string>(json, "path");
  arm.step_ms = figured_of(entry_of(json, "step_ms"), "median");
  arm.samples_per_s = value_if<double>(json, "samples_per_s");
  arm.exposed_ms = value_if<double>(json, "exposed_ms", kSigned);
  arm.communication_ms = value_if<double>(json, "communication_ms");
  arm.hidden_share = value_if<double>(json, "hidden_share", {0, 1});
  arm.predicted_ms = value_if<double>(json, "predicted_ms");
  arm.proof = value_of<std::string>(json, "proof", "not measured");
  arm.proof_reason = value_of<std::string>(json, "proof_reason");
  const Json& runs = elements_of(json, "runs");
  lower_to_runs(arm, runs, figures);
  if (!runs.empty()) arm.disturbing = disturbing_collectives(runs.get_ref<const std::vector<Json>&>());
  const Json run = runs.empty() ? Json() : runs.front();
  const Json& probe = entry_of(run, "probe");
  arm.over_nvlink = value_of<bool>(probe, "over_nvlink");
  arm.probe = counted_of(probe);
  arm.probe_expected_bytes = value_of<double>(probe, "expected_bytes");
  arm.timeline = step_timeline_of(entry_of(json, "timeline"));
  const Json& sweep = entry_of(json, "sweep");
  arm.sweep = sweep_times(sweep);
  const Json& sweep_probe = entry_of(sweep, "probe");
  arm.sweep_proven = verdict_of(sweep_probe) == Verdict::proven &&
                     refutation_of_probe(sweep_probe, arm.link, value_of<int>(sweep, "ranks")).empty();
  arm.model = model_times(elements_of(json, "bandwidth"));
  arm.host_to_device_gb_s = value_if<double>(sweep, "host_to_device_gb_s");
  arm.device_to_host_gb_s = value_if<double>(sweep, "device_to_host_gb_s");
  const Json& variables = entry_of(entry_of(run, "link"), "variables");
  if (variables.is_object()) {
    for (const auto& [name, value] : variables.items()) {
      arm.variables.emplace_back(name, read_value<std::string>(value, name));
    }
  }
  return arm;
}

CaseFigures case_of(const Json& json) {
  CaseFigures figures;
  figures.model = value_of<std::string>(json, "model", "a training");
  figures.ranks = value_of<int>(json, "ranks");
  figures.batch_per_rank = value_of<std::int64_t>(json, "batch_per_rank");
  figures.on_gpus = value_of<std::string>(json, "device") == "cuda";
  figures.device_name = value_of<std::string>(json, "device_name");
  figures.precision = value_of<std::string>(json, "precision");
  figures.deterministic = value_of<bool>(json, "deterministic");
  figures.threads = value_of<int>(json, "threads");
  figures.options = entry_of(json, "options");
  figures.emulated = value_of<bool>(json, "emulated");
  figures.slow_motion = value_of<double>(json, "slow_motion", 1.0);
  figures.repeats = value_of<int>(json, "repeats");
  figures.steps = value_of<int>(json, "steps");
  figures.warmup = value_of<int>(json, "warmup");
  figures.alone_ms = value_if<double>(json, "alone_ms");
  for (const Json& arm : elements_of(json, "arms")) figures.arms.push_back(arm_of(arm, figures));
  // Each of these alone says so, whatever else a file has lost.
  figures.emulated |= figures.slow_motion != 1.0;
  for (const ArmFigures& arm : figures.arms) figures.emulated |= arm.proof == "emulated";
  if (figures.arms.size() != 2) figures.arms.clear();
  const Json& speedup = entry_of(json, "speedup");
  figures.speedup = figured_of(speedup, "value");
  if (figures.speedup && figures.speedup->value <= 0) figures.speedup.reset();
  figures.predicted = value_if<double>(speedup, "predicted");
  figures.bound = value_if<double>(speedup, "bound");
  figures.conclusion = value_of<std::string>(json, "conclusion");
  for (const Json& step : elements_of(json, "modelled")) {
    figures.modelled.push_back({value_of<std::string>(step, "link"), value_of<std::string>(step, "path"),
                                value_of<std::string>(step, "source"), value_of<double>(step, "step_ms"),
                                value_if<double>(step, "exposed_ms", kSigned)});
  }
  return figures;
}

// In a step: all of a rank's gradients.
std::int64_t reduced_bytes(const ArmFigures& arm) {
  std::int64_t sum = 0;
  for (const BucketTiming& bucket : arm.timeline.value_or(StepTimeline{}).buckets) sum += bucket.bytes;
  return sum;
}

CompareFile file_of(const Json& json) {
  CompareFile compared;
  const auto add = [&](const Json& one) {
    if (entry_of(one, "arms").is_array()) compared.cases.push_back(case_of(one));
  };
  add(json);
  for (const Json& one : elements_of(json, "cases")) add(one);
  const bool any = std::any_of(compared.cases.begin(), compared.cases.end(),
                               [](const CaseFigures& figures) { return figures.speedup && !figures.arms.empty(); });
  expect(any, "expected a file of lockstep compare --json, found no comparison of two links in it");
  compared.version = value_of<std::string>(json, "version");
  const Json& machine = entry_of(json, "machine");
  compared.processor = value_of<std::string>(machine, "processor");
  compared.cores = value_if<int>(machine, "cores");
  const Json& versions = entry_of(machine, "versions");
  if (versions.is_object()) {
    for (const auto& [name, version] : versions.items()) {
      compared.versions.emplace_back(name, read_value<std::string>(version, name));
    }
  }
  compared.topology = topology_of(entry_of(machine, "topology"));
  return compared;
}

}  // namespace

bool CompareFile::emulated() const {
  return std::any_of(cases.begin(), cases.end(), [](const CaseFigures& figures) { return figures.emulated; });
}

CompareFile compare_file_of(const Json& json, const std::string& file) {
  return read_from(file, [&] { return file_of(json); });
}

ClaimEvidence evidence_of(const CompareFile& file) {
  ClaimEvidence evidence{.emulated = file.emulated(), .topology = file.topology};
  const auto add_ends = [](std::optional<SweepEnds>& ends, const ArmFigures& arm) {
    if (ends || !arm.sweep_proven || arm.sweep.empty()) return;
    const SizeTime& small = arm.sweep.front();
    const SizeTime& large = arm.sweep.back();
    ends = SweepEnds{small.bytes, small.us, large.bytes, large.busbw};
  };
  for (const CaseFigures& figures : file.cases) {
    if (figures.emulated) evidence.slow_motion = figures.slow_motion;
    if (figures.arms.empty() || !figures.speedup) continue;
    const ArmFigures* nvlink = nullptr;
    const ArmFigures* staged = nullptr;
    for (const ArmFigures& arm : figures.arms) {
      const bool proven = is_proven(arm);
      const bool takes_nvlink = proven ? arm.over_nvlink : arm.link == "nvlink";
      if (takes_nvlink) nvlink = &arm;
      if (arm.path == kStagedOverPcie) staged = &arm;
      if (proven && takes_nvlink && arm.link == "auto") evidence.nvlink_by_itself = true;
      if (proven && takes_nvlink) add_ends(evidence.nvlink, arm);
      if (arm.path == kStagedOverPcie) add_ends(evidence.staged, arm);
    }
    if (nvlink == nullptr || staged == nullptr || nvlink == staged) continue;
    const Figured& speedup = *figures.speedup;
    if (!speedup.low || !speedup.high) continue;  // one run each: no evidence
    Estimate gain{speedup.value, *speedup.low, *speedup.high};
    if (nvlink != figures.arms.data()) {  // how many times faster NVLink is, not staging
      const auto inverse = [](double ratio) { return ratio > 1 / measured_range<double>().most ? 1 / ratio : 0.0; };
      gain = {inverse(gain.value), inverse(gain.high), inverse(gain.low)};
    }
    evidence.trainings.push_back({.what = describe_training(figures),
                                  .speedup = gain,
                                  .proven = is_proven(*nvlink) && is_proven(*staged),
                                  .nvlink_gradient_bytes = reduced_bytes(*nvlink),
                                  .staged_gradient_bytes = reduced_bytes(*staged)});
  }
  return evidence;
}

}  // namespace lockstep::cli
