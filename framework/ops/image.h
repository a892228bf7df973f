#pragma once

#include <span>

#include "framework/core/tensor.h"

namespace lockstep {

// Samples as they are stored, (..., C) u8 or f32, to the context's type: (x * unit - mean[c]) / stddev[c], where unit
// is 1/255 for u8 and 1 for f32. mean and stddev (C), or both empty: not shifted nor scaled. Not differentiable. Throws
// std::invalid_argument on other types or numbers of channels.
Tensor normalize(const Tensor& samples, std::span<const float> mean, std::span<const float> stddev);

}  // namespace lockstep
