#include "framework/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep {

double Schedule::learning_rate(std::int64_t at) const {
  if (at < warmup_steps) return peak * static_cast<double>(at + 1) / static_cast<double>(warmup_steps + 1);
  const std::int64_t past = at - warmup_steps;
  const std::int64_t length = std::max<std::int64_t>(total_steps - warmup_steps, 1);
  const double progress = std::min(1.0, static_cast<double>(past) / static_cast<double>(length));
  const double floor = final_fraction * peak;
  switch (kind) {
    case Kind::constant:
      return peak;
    case Kind::cosine:
      return floor + (peak - floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    case Kind::linear:
      return floor + (peak - floor) * (1.0 - progress);
    case Kind::step:
      return peak * std::pow(gamma, static_cast<double>(past / step_size));
  }
  return peak;
}

}  // namespace lockstep
