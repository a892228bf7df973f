#include "kernels/step_report.h"

#include <chrono>

namespace lockstep::kernels {

void cpu::report_step(const ExecContext&, ConstView loss, const double* grad_norm, StepScalars* scalars,
                      StepReport* ring, std::int64_t slots) {
  ring[scalars->step % slots] = {
      .loss = loss.dtype == DType::f64 ? *loss.as<double>() : static_cast<double>(*loss.as<float>()),
      .grad_norm = grad_norm == nullptr ? 0.0 : *grad_norm,
      .step = scalars->step};
  ++scalars->step;
}

void cpu::stamp_time(const ExecContext&, const StepScalars* scalars, TimeStamp* stamp) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  *stamp = {scalars->step, std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()};
}

}  // namespace lockstep::kernels
