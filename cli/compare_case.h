// One training on two links: what is measured of it, and in which order.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/own_run.h"
#include "cli/workload.h"
#include "framework/interconnect/comparison.h"
#include "framework/interconnect/cost_model.h"
#include "framework/interconnect/overlap_model.h"

namespace lockstep::cli {

// What all cases of a comparison share.
struct CompareSetup {
  std::array<std::string, 2> links;  // modes, or emulated links
  bool emulated = false;
  DeviceArguments device;  // its ranks are the case's
  bool require_proof = false;
  int repeats = 5;
  std::optional<int> steps, warmup;
};

struct CompareArm {
  CostModel link;
  nlohmann::ordered_json sweep;              // of the link alone; null where its constants are not measured
  StepPrediction predicted;                  // made before the first run
  std::vector<nlohmann::ordered_json> runs;  // figures of `lockstep measure`

  std::vector<ArmRun> medians() const;
  // "proven", "contradicted", "unproven" (the worst of all runs) or "emulated", and why.
  std::string proof() const;
  std::string proof_reason() const;
  std::string path() const;  // how the bytes travel
  std::int64_t late() const;
};

// The functions are called in this order. Each run is a fresh process with fresh ranks.
class CompareCase {
 public:
  CompareCase(const CompareSetup& setup, std::string model, int ranks, const WorkloadArguments& workload)
      : setup_(setup), model_(std::move(model)), ranks_(ranks), workload_(workload) {}

  // The step without its all-reduces, when its buckets are ready, and for emulated links the factor of slow motion that
  // fits them.
  void measure_alone(const ScratchDirectory& scratch);
  double fitting_slow_motion() const { return alone_.at("slow_motion"); }

  // From the links' models alone: what the steps will take. Emulated times are multiplied by `slow_motion`.
  void predict(const std::array<CostModel, 2>& links, const std::array<nlohmann::ordered_json, 2>& sweeps,
               double slow_motion);
  double estimated_seconds() const;

  // `repeats` times both arms, in turn and in turned order, so that a machine that gets slower favours neither.
  void run(const ScratchDirectory& scratch);

  const CompareSetup& setup() const { return setup_; }
  const std::string& model() const { return model_; }
  int ranks() const { return ranks_; }
  std::int64_t batch_per_rank() const { return workload_.batch_per_rank; }
  // One rank has nothing to send: it is not run on the links.
  bool communicates() const { return ranks_ > 1; }
  double alone_ms() const { return alone_timeline_.step_ms; }
  double samples_per_s(double step_ms) const;
  double slow_motion() const { return slow_motion_; }
  const std::array<CompareArm, 2>& arms() const { return arms_; }
  const Comparison& comparison() const { return comparison_; }
  double predicted_speedup() const { return arms_[1].predicted.step_ms / arms_[0].predicted.step_ms; }
  // Predicted for these ranks on links that are not slowed down.
  double speedup_at_full_speed() const;
  std::string conclusion() const;
  // No arm is contradicted, nor unproven where a proof is required.
  bool is_proven_enough() const;
  nlohmann::ordered_json to_json() const;

 private:
  std::vector<std::string> command(const std::string& link) const;
  std::string plan_file(const ScratchDirectory& scratch) const;
  StepPrediction predict_on(const CostModel& link, double slow_motion) const;
  nlohmann::ordered_json arm_json(std::size_t arm) const;
  int timed_steps() const;
  int warmup_steps() const;

  const CompareSetup& setup_;
  std::string model_;
  int ranks_;
  WorkloadArguments workload_;
  nlohmann::ordered_json alone_;
  StepTimeline alone_timeline_;
  double seconds_to_start_ = 0.0;
  double slow_motion_ = 1.0;
  std::array<CompareArm, 2> arms_;
  Comparison comparison_;
};

}  // namespace lockstep::cli
