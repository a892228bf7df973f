// Layer normalisation. Ba, Kiros and Hinton, "Layer Normalization", 2016.
#pragma once

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels {

// y = (x - mean) * rstd * gamma + beta, mean and rstd = 1 / sqrt(variance + eps) of each row. The variance is that of
// the C values themselves (divided by C). x, y (N, C); gamma, beta (C); mean, rstd (N), kept for backward, of
// statistics_dtype of the rest. f32 and f64, on a GPU f32 and bf16.
using LayerNormForward = void(const ExecContext& exec, ConstView x, ConstView gamma, ConstView beta, double eps, View y,
                              View mean, View rstd);

// With xhat = (x - mean) * rstd and g = dy * gamma:
// dx (+)= rstd * (g - mean_c(g) - xhat * mean_c(g * xhat)), dgamma (+)= sum_n(dy * xhat), dbeta (+)= sum_n(dy).
using LayerNormBackward = void(const ExecContext& exec, ConstView dy, ConstView x, ConstView gamma, ConstView mean,
                               ConstView rstd, GradView dx, GradView dgamma, GradView dbeta);

namespace cpu {
LayerNormForward layer_norm_forward;
LayerNormBackward layer_norm_backward;
}  // namespace cpu
namespace cuda {
LayerNormForward layer_norm_forward;
LayerNormBackward layer_norm_backward;
}  // namespace cuda

}  // namespace lockstep::kernels
