// Learning-rate schedules: pure functions of the step.
#pragma once

#include <cstdint>

namespace lockstep {

struct Schedule {
  enum class Kind : std::uint8_t { constant, cosine, linear, step };

  Kind kind = Kind::constant;
  double peak = 0.1;              // the learning rate after warm-up
  double final_fraction = 0.0;    // cosine and linear end at this fraction of the peak
  std::int64_t warmup_steps = 0;  // rises linearly: peak * (step + 1) / (warmup_steps + 1)
  std::int64_t total_steps = 0;   // cosine and linear reach their end here
  std::int64_t step_size = 1;     // step: multiplied by gamma after each so many steps past warm-up
  double gamma = 0.1;

  // The learning rate of step 0, 1, 2 ...
  double learning_rate(std::int64_t at) const;
};

}  // namespace lockstep
