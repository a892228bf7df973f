#pragma once

#include <cstdint>

#include "framework/core/tensor.h"

namespace lockstep {

// Sets elements to zero with probability p and divides the others by 1 - p (Srivastava et al., 2014). x (B, ...) f32,
// bf16 or f64, its leading dimension the samples; p in [0, 1), 0 returns x itself. `op` tells one dropout of a model
// from another.
//
// Each draw is a function of the context's seed and step, of op, of the sample's place in the global batch
// (sample_offset + row) and of the element within the sample. So a mask does not depend on how the batch is spread over
// ranks. Nothing is saved: backward draws the mask again, and must therefore run before the context's random state
// changes, that is, in the same micro-step.
// Throws std::invalid_argument on another p.
Tensor dropout(const Tensor& x, double p, std::uint32_t op);

}  // namespace lockstep
