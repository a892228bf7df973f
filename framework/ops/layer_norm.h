#pragma once

#include "framework/core/tensor.h"

namespace lockstep {

// (x - mean) / sqrt(variance + eps) * gamma + beta over the last dimension, the variance divided by C (Ba, Kiros and
// Hinton, 2016). x (..., C) f32, bf16 or f64, gamma and beta (C) of the same type, result of the shape of x. Saves x,
// gamma, and the mean and inverse deviation of each row. Throws std::invalid_argument on shapes or types that do not
// fit.
Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps = 1e-5);

}  // namespace lockstep
