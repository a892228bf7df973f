// The training whose steps are timed: a model, one made-up batch that stays in memory, SGD.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "framework/distributed/process_group.h"
#include "framework/train/train_step.h"
#include "models/registry.h"

namespace lockstep::cli {

struct BucketArguments {
  double first_bucket_mib = 1.0;
  double bucket_cap_mib = 25.0;

  BucketCaps caps() const { return {.first_mib = first_bucket_mib, .cap_mib = bucket_cap_mib}; }
};

template <class Visitor>
void visit_fields(BucketArguments& arguments, Visitor&& visit) {
  visit("--bucket-cap-mib", arguments.bucket_cap_mib, "a bucket of gradients is closed at this size");
  visit("--first-bucket-mib", arguments.first_bucket_mib, "the same for the first");
}

struct WorkloadArguments {
  std::int64_t batch_per_rank = 64;
  BucketArguments buckets;
  std::string grad_dtype = "f32";
  std::string overlap = "on";
  std::string graph = "on";
  std::uint64_t seed = 0;
};

template <class Visitor>
void visit_fields(WorkloadArguments& arguments, Visitor&& visit) {
  visit("--batch-per-rank", arguments.batch_per_rank, "samples of a rank in a step");
  visit_fields(arguments.buckets, visit);
  visit("--grad-dtype", arguments.grad_dtype, "of the gradients that the ranks sum: f32, or on GPUs bf16");
  visit("--overlap", arguments.overlap, "on, off (all-reduce after backward) or naive (one by one, after backward)");
  visit("--graph", arguments.graph, "on GPUs: on (the step is captured once and replayed) or off");
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
