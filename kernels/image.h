// From stored samples to what a model reads.
#pragma once

#include <span>

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels {

// y[..., c] = (x[..., c] * unit - mean[c]) / stddev[c], unit = 1/255 for u8 and 1 for f32. x (..., C) u8 or f32,
// y the same shape, f32 or f64 (GPU: f32 or bf16). mean and stddev (C), in host memory; both empty: 0 and 1. A GPU
// takes at most 128 channels of them.
using Normalize = void(const ExecContext& exec, ConstView x, std::span<const float> mean, std::span<const float> stddev,
                       View y);

namespace cpu {
Normalize normalize;
}  // namespace cpu
namespace cuda {
Normalize normalize;
}  // namespace cuda

}  // namespace lockstep::kernels
