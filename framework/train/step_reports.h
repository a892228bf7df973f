// The reports of the last steps, in memory that the device writes and the host reads some steps later.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/core/stream.h"
#include "framework/core/tensor.h"
#include "kernels/step_report.h"

namespace lockstep {

class StepReports {
 public:
  // So many steps may be enqueued whose reports are not taken.
  static constexpr std::int64_t kSlots = 4;

  StepReports();

  // Enqueues kernels/step_report.h, as the last of a step: on a CPU it is written at once.
  void write(const Tensor& loss, const double* grad_norm, kernels::StepScalars* scalars);
  // After the step that writes a report, or the launch of a graph that holds it, has been enqueued; pending() was less
  // than kSlots.
  void enqueued(std::int64_t step);

  // Steps whose reports are not taken.
  std::int64_t pending() const { return enqueued_ - taken_; }
  // The oldest of them; waits for the device to come there.
  StepReport take();

 private:
  StepReport* ring() const { return static_cast<StepReport*>(ring_.get()); }

  std::shared_ptr<void> ring_;  // kSlots reports
  std::vector<Event> written_;  // of each slot, on a GPU
  std::int64_t enqueued_ = 0;
  std::int64_t taken_ = 0;
};

}  // namespace lockstep
