#pragma once

#include "framework/core/tensor.h"
#include "framework/ops/activation.h"

namespace lockstep {

// y = activation(x weight^T + bias). x (..., C), weight (O, C), bias (O) or undefined, y (..., O); f32, bf16
// or f64, accumulated in f32 or f64. Leading dimensions of x are flattened to rows. Saves x and weight, and y where
// there is an activation. Throws std::invalid_argument on shapes or types that do not fit.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Activation activation = Activation::none);

}  // namespace lockstep
