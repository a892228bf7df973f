#pragma once

#include "framework/core/tensor.h"
#include "framework/ops/activation.h"
#include "kernels/conv2d.h"

namespace lockstep {

using kernels::Conv2dParams;

// 2-d convolution, then the activation: x (N, H, W, C), weight (O, KH, KW, C), bias (O) or undefined -> (N, OH, OW, O)
// with OH = (H + 2 padding - KH) / stride + 1; f32, bf16 or f64. Saves x and weight, and the output where there is an
// activation.
// Throws std::invalid_argument on shapes or types that do not fit, or a kernel larger than the padded image.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dParams& params,
              Activation activation = Activation::none);

// Convolution, ReLU and max pooling over windows of `window`^2 elements side by side, as one op: what lies between is
// not kept, only x, weight and a byte for each window. -> (N, OH / window, OW / window, O); rows and columns that fill
// no window are left out. Throws as conv2d does, and on a window outside [1, 15] or larger than the convolution's
// result.
Tensor conv2d_relu_max_pool2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dParams& params,
                              std::int64_t window);

}  // namespace lockstep
