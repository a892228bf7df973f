// The training whose steps are timed: a model, one made-up batch that stays in memory, SGD.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/step_arguments.h"
#include "framework/distributed/process_group.h"
#include "framework/train/train_step.h"
#include "models/registry.h"

namespace lockstep::cli {

struct WorkloadArguments {
  std::int64_t batch_per_rank = 64;
  StepArguments step;
  std::uint64_t seed = 0;
};

template <class Visitor>
void visit_fields(WorkloadArguments& arguments, Visitor&& visit) {
  visit("--batch-per-rank", arguments.batch_per_rank, "samples of a rank in a step");
  visit_fields(arguments.step, visit);
  visit("--seed", arguments.seed, "of initial weights and samples");
}

// Throws std::invalid_argument for values that are none.
void check(const std::string& model, const WorkloadArguments& arguments);

// On the current context's device. Not one sample is read or copied while steps run: only computing and communication
// are timed.
class Workload {
 public:
  Workload(const std::string& model, const WorkloadArguments& arguments, int rank);

  // Ready for its first step. The group and this must outlive it.
  std::unique_ptr<TrainStep> make_step(ProcessGroup& group, bool timeline) const;
  const DeviceBatch& batch() const { return batch_; }

 private:
  WorkloadArguments arguments_;
  Model model_;
  DeviceBatch batch_;
};

// Elements of the model's buckets of gradients in the order in which they are reduced; computed on the CPU.
std::vector<std::int64_t> bucket_elements(const std::string& model, const BucketArguments& arguments);

}  // namespace lockstep::cli
