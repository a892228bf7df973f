// Elementwise ops on tensors of one shape and type (f32, bf16 or f64).
#pragma once

#include "framework/core/tensor.h"

namespace lockstep {

// a + b. Backward passes the same gradient to both, without a copy.
Tensor add(const Tensor& a, const Tensor& b);
// a * b, elementwise. Saves both factors.
Tensor multiply(const Tensor& a, const Tensor& b);
// factor * x
Tensor scale(const Tensor& x, double factor);

}  // namespace lockstep
