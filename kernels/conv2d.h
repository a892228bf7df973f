// 2-d convolution (cross-correlation, as in every framework), NHWC.
#pragma once

#include <cstdint>

#include "kernels/activation.h"
#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels {

struct Conv2dParams {
  std::int64_t stride = 1;
  std::int64_t padding = 0;  // zeros on each side
};

// x, weight, bias and y have one type: f32 or f64, on a GPU f32 or bf16.

// y[n, i, j, o] = activation(bias[o] + sum over (p, q, c) of x[n, i stride + p - padding, j stride + q - padding, c]
// weight[o, p, q, c]). x (N, H, W, C), weight (O, KH, KW, C), bias (O) or null data, y (N, OH, OW, O), OH = (H + 2
// padding - KH) / stride + 1.
using Conv2dForward = void(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias,
                           const Conv2dParams& params, Activation activation, View y);

// Gradients of x, weight and bias from dy (N, OH, OW, O), the gradient of the sums, before the activation. Null targets
// are skipped. Takes dx.unrectified. A GPU reads x and weight while the kernel before this may still run: forward,
// which read them too, lies between whoever wrote them and this.
using Conv2dBackward = void(const ExecContext& exec, ConstView dy, ConstView x, ConstView weight,
                            const Conv2dParams& params, GradView dx, GradView dweight, GradView dbias);

namespace cpu {
Conv2dForward conv2d_forward;
Conv2dBackward conv2d_backward;
}  // namespace cpu
namespace cuda {
Conv2dForward conv2d_forward;
Conv2dBackward conv2d_backward;
}  // namespace cuda

}  // namespace lockstep::kernels
