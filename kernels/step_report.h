// What a step tells the host while the device runs ahead of or behind it: written by kernels into memory of the host.
#pragma once

#include <cstdint>

#include "kernels/exec_context.h"
#include "kernels/optimizer.h"
#include "kernels/tensor_view.h"

namespace lockstep {

// The outcome of one optimizer step.
struct StepReport {
  double loss = 0.0;       // mean over the global batch
  double grad_norm = 0.0;  // of the averaged gradient before clipping; 0 where not measured
  std::int64_t step = 0;   // since the start of training; 1 is the first
};

// That a step has come to some place.
struct TimeStamp {
  std::int64_t step = 0;
  std::int64_t nanoseconds = 0;  // of the device's clock
};

namespace kernels {

// The last of a step: ring[scalars->step % slots] = {*loss, *grad_norm, scalars->step}, then ++scalars->step. loss: a
// scalar, f32 or f64, from before the last update of parameters: a GPU reads it beside that. grad_norm may be null. On
// a GPU `ring` is pinned memory of the host, which may read the entry when an event behind this has come.
using ReportStep = void(const ExecContext& exec, ConstView loss, const double* grad_norm, StepScalars* scalars,
                        StepReport* ring, std::int64_t slots);

// *stamp = {scalars->step, now}. On a GPU `stamp` is pinned memory of the host, which sees it while the step runs on.
using StampTime = void(const ExecContext& exec, const StepScalars* scalars, TimeStamp* stamp);

namespace cpu {
ReportStep report_step;
StampTime stamp_time;
}  // namespace cpu
namespace cuda {
ReportStep report_step;
StampTime stamp_time;
}  // namespace cuda

}  // namespace kernels
}  // namespace lockstep
