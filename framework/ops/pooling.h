#pragma once

#include "framework/core/tensor.h"
#include "kernels/pooling.h"

namespace lockstep {

using kernels::Pool2dParams;

// The largest element of each window. x (N, H, W, C) f32, bf16 or f64 -> (N, OH, OW, C) with
// OH = (H + 2 padding - kernel) / stride + 1. Of equals the first gets the gradient. Saves x.
// Throws std::invalid_argument where a window is larger than the padded image, or a padding than half a window.
Tensor max_pool2d(const Tensor& x, const Pool2dParams& params);

// The mean of each window; padding counts as zeros, as torch.nn.AvgPool2d does by default.
Tensor avg_pool2d(const Tensor& x, const Pool2dParams& params);

// Means over windows whose sizes follow from the output's: x (N, H, W, C) -> (N, height, width, C), x itself where that
// is its size already. Windows as in torch.nn.AdaptiveAvgPool2d: they differ by at most a pixel, and overlap where the
// sizes do not divide. Throws std::invalid_argument for sizes below 1.
Tensor adaptive_avg_pool2d(const Tensor& x, std::int64_t height, std::int64_t width);

}  // namespace lockstep
