#include "cli/compare_case.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "cli/measure_command.h"
#include "cli/run_verdict.h"
#include "cli/sweep_file.h"
#include "cli/timeline_json.h"
#include "framework/core/error.h"
#include "framework/core/statistics.h"
#include "framework/interconnect/all_reduce_sweep.h"
#include "framework/interconnect/published_links.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

// Unless it is said: steps for about a second in each run, as far as these bounds allow.
constexpr double kTimedMs = 1000;
constexpr int kFewestSteps = 5;
constexpr int kMostSteps = 100;

constexpr std::int64_t kLossBytes = 4;

Json estimate_json(const Estimate& estimate, const char* value) {
  return {{value, estimate.value}, {"low", estimate.low}, {"high", estimate.high}};
}

}  // namespace

std::vector<ArmRun> CompareArm::medians() const {
  std::vector<ArmRun> medians;
  for (const Json& run : runs) medians.push_back({median_of(run.at("step_ms")), median_of(run.at("alone_ms"))});
  return medians;
}

std::string CompareArm::proof() const {
  return runs.front().at("emulated") == true ? "emulated" : worst_proof(runs).at("verdict").get<std::string>();
}

std::string CompareArm::proof_reason() const {
  if (runs.front().at("emulated") == true) return "no such link carries anything here: its times are emulated";
  return worst_proof(runs).at("reason");
}

std::string CompareArm::path() const {
  const Json& run = runs.front();
  if (run.at("emulated") == true) return std::string(published_link(run.at("emulate").get<std::string>()).path);
  return run.at("link").at("description");
}

std::int64_t CompareArm::late() const {
  std::int64_t sum = 0;
  for (const Json& run : runs) sum += run.value("late", std::int64_t{0});
  return sum;
}

std::vector<std::string> CompareCase::command(const std::string& link) const {
  MeasureArguments arguments{.device = setup_.device, .workload = workload_};
  arguments.device.ranks = ranks_;
  if (setup_.emulated) {
    arguments.emulation = {.emulate = link};
  } else {
    arguments.link = {.link = link, .require_proof = setup_.require_proof};
  }
  arguments.steps = timed_steps();
  arguments.warmup = warmup_steps();
  std::vector<std::string> words{"measure", model_};
  const std::vector<std::string> options = to_words(arguments);
  words.insert(words.end(), options.begin(), options.end());
  return words;
}

// The choices of algorithms depend on the shapes, not on the ranks.
std::string CompareCase::plan_file(const ScratchDirectory& scratch) const {
  return scratch.file(fmt::format("plan-{}-{}", model_, workload_.batch_per_rank));
}

int CompareCase::warmup_steps() const { return setup_.warmup.value_or(setup_.emulated ? 2 : 5); }

int CompareCase::timed_steps() const {
  const double slowest = std::max(arms_[0].predicted.step_ms, arms_[1].predicted.step_ms);
  if (setup_.steps || slowest <= 0) return setup_.steps.value_or(2 * kFewestSteps);
  return std::clamp(static_cast<int>(kTimedMs / slowest), kFewestSteps, kMostSteps);
}

void CompareCase::measure_alone(const ScratchDirectory& scratch) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> words = command(setup_.emulated ? setup_.links[0] + "," + setup_.links[1] : setup_.links[0]);
  words.insert(words.end(), {"--alone", "--timeline", "--plan", plan_file(scratch)});
  alone_ = run_own(words, scratch);
  alone_timeline_ = alone_timeline_of(alone_);
  seconds_to_start_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

StepPrediction CompareCase::predict_on(const CostModel& link, double slow_motion) const {
  const std::string& overlap = workload_.step.overlap;
  StepTimeline alone = alone_timeline_;
  if (overlap != "on") {  // all of them wait for the end of backward
    alone.buckets.clear();
    for (const Json& bytes : alone_.at("all_reduces")) {
      alone.buckets.push_back({.bytes = bytes, .ready_ms = alone.backward_ms});
    }
  }
  return predict_step(
      alone, [&](std::int64_t bytes) { return 1e-3 * slow_motion * link.all_reduce_us(bytes, ranks_); }, kLossBytes,
      /*update_by_bucket=*/overlap != "naive");
}

void CompareCase::predict(const std::array<CostModel, 2>& links, const std::array<Json, 2>& sweeps,
                          double slow_motion) {
  slow_motion_ = slow_motion;
  for (std::size_t i = 0; i < 2; ++i) {
    arms_[i].link = links[i];
    arms_[i].sweep = sweeps[i];
    arms_[i].predicted = predict_on(links[i], slow_motion_);
  }
}

double CompareCase::speedup_at_full_speed() const {
  return predict_on(arms_[1].link, 1.0).step_ms / predict_on(arms_[0].link, 1.0).step_ms;
}

double CompareCase::estimated_seconds() const {
  double seconds = 0;
  for (const CompareArm& arm : arms_) {
    const double step_ms = arm.predicted.step_ms + alone_timeline_.step_ms;
    seconds += setup_.repeats * (seconds_to_start_ + 1e-3 * step_ms * (timed_steps() + warmup_steps()));
  }
  return communicates() ? seconds : 0.0;
}

void CompareCase::run(const ScratchDirectory& scratch) {
  for (int repeat = 0; repeat < setup_.repeats; ++repeat) {
    for (int turn = 0; turn < 2; ++turn) {
      const auto arm = static_cast<std::size_t>((repeat + turn) % 2);
      std::vector<std::string> words = command(setup_.links[arm]);
      words.insert(words.end(), {"--plan", plan_file(scratch)});
      if (setup_.emulated) words.insert(words.end(), {"--slow-motion", fmt::format("{}", slow_motion_)});
      if (repeat == 0) words.emplace_back("--timeline");
      arms_[arm].runs.push_back(run_own(words, scratch));
    }
  }
  comparison_ = compare_arms(arms_[0].medians(), arms_[1].medians());
}

double CompareCase::samples_per_s(double step_ms) const {
  return 1e3 * static_cast<double>(workload_.batch_per_rank * ranks_) / step_ms;
}

std::string CompareCase::conclusion() const {
  return lockstep::conclusion(comparison_, setup_.links,
                              {arms_[0].predicted.communication_ms, arms_[1].predicted.communication_ms});
}

bool CompareCase::is_proven_enough() const {
  return !communicates() || std::all_of(arms_.begin(), arms_.end(), [&](const CompareArm& arm) {
    const Verdict verdict = parse_verdict(arm.proof()).value_or(Verdict::proven);  // there is none of an emulated link
    return verdict == Verdict::proven || (verdict == Verdict::unproven && !setup_.require_proof);
  });
}

Json CompareCase::arm_json(std::size_t i) const {
  const CompareArm& arm = arms_[i];
  const ArmSummary& summary = comparison_.arms[i];
  const double communication = arm.predicted.communication_ms;
  Json json = {{"link", setup_.links[i]},
               {"path", arm.path()},
               {"step_ms", estimate_json(summary.step_ms, "median")},
               {"samples_per_s", samples_per_s(summary.step_ms.value)},
               {"exposed_ms", summary.exposed_ms},
               {"communication_ms", communication},
               {"hidden_share", hidden_share(communication, summary.exposed_ms)},
               {"predicted_ms", arm.predicted.step_ms},
               {"proof", arm.proof()},
               {"proof_reason", arm.proof_reason()},
               {"timeline", arm.runs[0].at("timeline")},
               {"cost_model", model_json(arm.link)},
               {"bandwidth", Json::array()},
               {"sweep", arm.sweep},
               {"runs", Json::array()}};
  if (setup_.emulated) json["late"] = arm.late();
  for (std::int64_t bytes = 1024; bytes <= std::int64_t{1} << 30; bytes *= 4) {
    const double us = arm.link.all_reduce_us(bytes, ranks_);
    json["bandwidth"].push_back({{"bytes", bytes}, {"us", us}, {"busbw", all_reduce_busbw(bytes, us, ranks_)}});
  }
  for (const Json& run : arm.runs) {
    json["runs"].push_back({{"step_ms", run.at("step_ms")},
                            {"alone_ms", run.at("alone_ms")},
                            {"link", run.at("link")},
                            {"probe", run.at("probe")},
                            {"training", run.at("training")}});
  }
  return json;
}

Json CompareCase::to_json() const {
  Json json = {{"model", model_},
               {"ranks", ranks_},
               {"batch_per_rank", workload_.batch_per_rank},
               {"device", alone_.at("device")},
               {"device_name", alone_.at("device_name")},
               {"threads", alone_.at("threads")},
               {"precision", setup_.device.precision},
               {"deterministic", setup_.device.deterministic},
               {"options", alone_.at("options")},
               {"emulated", setup_.emulated},
               {"slow_motion", slow_motion_},
               {"repeats", setup_.repeats},
               {"steps", timed_steps()},
               {"warmup", warmup_steps()},
               {"buckets", alone_.at("buckets")},
               {"all_reduces", alone_.at("all_reduces")},
               {"alone_ms", communicates() ? comparison_.alone_ms : median_of(alone_.at("alone_ms"))},
               {"alone_timeline", alone_.at("alone_timeline")},
               {"arms", Json::array()}};
  if (!communicates()) return json;
  for (std::size_t i = 0; i < arms_.size(); ++i) json["arms"].push_back(arm_json(i));
  json["speedup"] = estimate_json(comparison_.speedup, "value");
  json["speedup"]["predicted"] = predicted_speedup();
  json["speedup"]["bound"] = comparison_.bound;
  json["conclusion"] = conclusion();
  json["modelled"] = Json::array();
  for (const PublishedLink& link : published_links()) {
    const StepPrediction step = predict_on(cost_model_of(link), slow_motion_);
    json["modelled"].push_back({{"link", link.name},
                                {"path", link.path},
                                {"source", link.source},
                                {"step_ms", step.step_ms},
                                {"exposed_ms", step.exposed_ms}});
  }
  return json;
}

}  // namespace lockstep::cli
