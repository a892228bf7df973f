#include "cli/step_arguments.h"

#include "framework/core/error.h"
#include "framework/core/nearest_name.h"

namespace lockstep::cli {

void check(const StepArguments& arguments) {
  expect_known("overlap mode", arguments.overlap, {"on", "off", "naive"});
  expect_known("--grad-dtype", arguments.grad_dtype, {"f32", "bf16"});
  expect_known("--graph", arguments.graph, {"on", "off"});
  expect(arguments.buckets.bucket_cap_mib > 0 && arguments.buckets.first_bucket_mib > 0,
         "--bucket-cap-mib, --first-bucket-mib: expected more than 0, got {} and {}", arguments.buckets.bucket_cap_mib,
         arguments.buckets.first_bucket_mib);
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
