#include "framework/train/step_reports.h"

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/host_memory.h"
#include "kernels/dispatch.h"

namespace lockstep {

StepReports::StepReports() : ring_(allocate_host(kSlots * sizeof(StepReport))) {
  if constexpr (kernels::kHasCuda) {
    if (context().device() == DeviceType::cuda) {
      for (std::int64_t i = 0; i < kSlots; ++i) written_.push_back(Event::create());
    }
  }
}

void StepReports::write(const Tensor& loss, const double* grad_norm, kernels::StepScalars* scalars) {
  LOCKSTEP_DISPATCH(report_step, context().exec(), loss, grad_norm, scalars, ring(), kSlots);
}

void StepReports::enqueued(std::int64_t step) {
  if (pending() == 0) taken_ = step - 1;
  enqueued_ = step;
  if constexpr (kernels::kHasCuda) {
    if (!written_.empty()) written_[static_cast<std::size_t>(step % kSlots)].record(context().exec().stream);
  }
}

StepReport StepReports::take() {
  expect(pending() > 0, "train step: expected a step whose result is not taken, got none");
  const std::int64_t step = ++taken_;
  if constexpr (kernels::kHasCuda) {
    if (!written_.empty()) written_[static_cast<std::size_t>(step % kSlots)].synchronize();
  }
  return ring()[step % kSlots];
}

}  // namespace lockstep
