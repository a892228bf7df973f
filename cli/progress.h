// What a person sees while a run goes on: a bar on a terminal, a line now and then elsewhere.
#pragma once

#include <chrono>
#include <cstdint>

#include "framework/train/metrics.h"

namespace lockstep::cli {

class Progress {
 public:
  Progress(std::int64_t first_step, std::int64_t total_steps);
  // Shows loss, samples/s and time left; evaluations stay visible above the bar.
  void update(const StepMetrics& metrics);

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t first_step_;
  std::int64_t total_steps_;
  bool terminal_;
  double mean_loss_ = 0.0;  // exponential mean, as single batches jump
  double mean_rate_ = 0.0;
  Clock::time_point started_ = Clock::now();
  Clock::time_point shown_;
};

}  // namespace lockstep::cli
