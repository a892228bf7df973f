// How a step is done: the options that `train` and the commands that time a step share.
#pragma once

#include <optional>
#include <string>

#include "framework/core/context.h"
#include "framework/train/train_step.h"

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

struct StepArguments {
  BucketArguments buckets;
  std::string grad_dtype = "f32";
  std::string overlap = "on";
  std::string graph = "on";
};

template <class Visitor>
void visit_fields(StepArguments& arguments, Visitor&& visit) {
  visit_fields(arguments.buckets, visit);
  visit("--grad-dtype", arguments.grad_dtype,
        "f32, or on GPUs bf16: of gradients between ranks, and without accumulation wherever they are kept");
  visit("--overlap", arguments.overlap,
        "on, off (all-reduce after backward) or naive (one by one, for each parameter)");
  visit("--graph", arguments.graph, "on GPUs: on (the step is captured once and replayed) or off");
}

// Throw std::invalid_argument for values that are none.
void check(const BucketArguments& arguments);
void check(const StepArguments& arguments);
// Of a command that times steps.
void check_counts(std::optional<int> steps, std::optional<int> warmup);
// The same for those that need a GPU.
void check_device(const StepArguments& arguments, DeviceType device);

TrainStepOptions step_options(const StepArguments& arguments);

}  // namespace lockstep::cli
