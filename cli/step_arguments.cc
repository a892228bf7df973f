#include "cli/step_arguments.h"

#include "framework/core/error.h"
#include "framework/core/nearest_name.h"

namespace lockstep::cli {
namespace {

constexpr double kLargestBucketMib = 1e6;  // more than any memory
constexpr int kMostSteps = 1'000'000;      // whose times are all kept

}  // namespace

void check(const BucketArguments& arguments) {
  const auto is_size = [](double mib) { return mib > 0 && mib <= kLargestBucketMib; };
  expect(is_size(arguments.bucket_cap_mib) && is_size(arguments.first_bucket_mib),
         "--bucket-cap-mib, --first-bucket-mib: expected more than 0 and at most {:g}, got {} and {}",
         kLargestBucketMib, arguments.bucket_cap_mib, arguments.first_bucket_mib);
}

void check_counts(std::optional<int> steps, std::optional<int> warmup) {
  const auto is_count = [](int count) { return count >= 1 && count <= kMostSteps; };
  expect(is_count(steps.value_or(1)) && is_count(warmup.value_or(1)),
         "--steps, --warmup: expected from 1 to {}, got {} and {}", kMostSteps, steps.value_or(1), warmup.value_or(1));
}

void check(const StepArguments& arguments) {
  expect_known("overlap mode", arguments.overlap, {"on", "off", "naive"});
  expect_known("--grad-dtype", arguments.grad_dtype, {"f32", "bf16"});
  expect_known("--graph", arguments.graph, {"on", "off"});
  check(arguments.buckets);
}

void check_device(const StepArguments& arguments, DeviceType device) {
  expect(arguments.grad_dtype == "f32" || device == DeviceType::cuda,
         "--grad-dtype {}: expected a GPU, got CPU ranks, whose gradients are f32", arguments.grad_dtype);
}

TrainStepOptions step_options(const StepArguments& arguments) {
  TrainStepOptions options{.graph = arguments.graph == "on", .caps = arguments.buckets.caps()};
  options.buckets.overlap = arguments.overlap == "naive" ? Overlap::naive
                            : arguments.overlap == "off" ? Overlap::off
                                                         : Overlap::on;
  if (arguments.grad_dtype == "bf16") options.grad_dtype = DType::bf16;
  return options;
}

}  // namespace lockstep::cli
