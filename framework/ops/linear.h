#pragma once

#include "framework/core/tensor.h"

namespace lockstep {

// y = x weight^T + bias. x (..., C), weight (O, C), bias (O) or undefined, y (..., O); f32 or f64, accumulated in the
// same type. Leading dimensions of x are flattened to rows. Saves x and weight.
// Throws std::invalid_argument on shapes or types that do not fit.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace lockstep
