#pragma once

#include "framework/core/tensor.h"
#include "kernels/conv2d.h"

namespace lockstep {

using kernels::Conv2dParams;

// 2-d convolution: x (N, H, W, C), weight (O, KH, KW, C), bias (O) or undefined -> (N, OH, OW, O) with
// OH = (H + 2 padding - KH) / stride + 1; f32 or f64. Saves x and weight.
// Throws std::invalid_argument on shapes or types that do not fit, or a kernel larger than the padded image.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dParams& params);

}  // namespace lockstep
