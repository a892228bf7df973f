// The L2 norm of the gradients, and the factor that clips it. Both stay in the memory of the device. Partial sums are
// taken over fixed blocks of the gradient arena and combined in its order, so that neither the buckets nor the threads
// change the result.
#pragma once

#include <cstdint>

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels {

// Gradients that make one partial sum. A bucket starts on a multiple of it.
inline constexpr std::int64_t kNormBlock = 65536;

// partials[b] = sum of squares of block b, the padding between parameters included: it is to be zero.
// gradients (n) f32 or f64 (GPU: f32 or bf16), partials (ceil(n / kNormBlock)) f64.
using SumOfSquares = void(const ExecContext& exec, ConstView gradients, View partials);

// norm = sqrt(sum of partials), clip_factor = min(1, max_norm / (norm + 1e-6)) as in torch's clip_grad_norm_; max_norm
// 0 clips nothing: the factor is 1. A norm of NaN makes the factor NaN. norm, clip_factor: one element each, f64.
using CombineNorm = void(const ExecContext& exec, ConstView partials, double max_norm, View norm, View clip_factor);

namespace cpu {
SumOfSquares sum_of_squares;
CombineNorm combine_norm;
}  // namespace cpu
namespace cuda {
SumOfSquares sum_of_squares;
CombineNorm combine_norm;
}  // namespace cuda

}  // namespace lockstep::kernels
