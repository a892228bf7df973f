#include "kernels/step_report.h"

#include "kernels/cuda/launch.cuh"

namespace lockstep::kernels {
namespace {

// Beside the update before it, except for a norm, which may be the work of that kernel; the step goes on behind it.
__global__ void write_report(const float* loss, const double* grad_norm, StepScalars* scalars, StepReport* ring,
                             std::int64_t slots) {
  if (grad_norm != nullptr) cuda::begin_kernel();
  const std::int64_t step = scalars->step;
  StepReport& report = ring[step % slots];
  report.loss = static_cast<double>(*loss);
  report.grad_norm = grad_norm == nullptr ? 0.0 : *grad_norm;
  report.step = step;
  if (grad_norm == nullptr) cuda::begin_kernel();
  scalars->step = step + 1;
}

__global__ void write_stamp(const StepScalars* scalars, volatile TimeStamp* stamp) {
  cuda::begin_kernel();
  std::int64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  stamp->nanoseconds = now;
  __threadfence_system();  // a reader that sees the step sees its time
  stamp->step = scalars->step;
}

}  // namespace

void cuda::report_step(const ExecContext& exec, ConstView loss, const double* grad_norm, StepScalars* scalars,
                       StepReport* ring, std::int64_t slots) {
  Launch(exec, 1, 1)(write_report, loss.as<float>(), grad_norm, scalars, ring, slots);
}

void cuda::stamp_time(const ExecContext& exec, const StepScalars* scalars, TimeStamp* stamp) {
  Launch(exec, 1, 1)(write_stamp, scalars, static_cast<volatile TimeStamp*>(stamp));
}

}  // namespace lockstep::kernels
