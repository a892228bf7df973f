// Fully connected layer.
#pragma once

#include "kernels/activation.h"
#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels {

// x, weight, bias and y have one type: f32 or f64, on a GPU f32 or bf16.

// y = activation(x weight^T + bias). x (N, C), weight (O, C), bias (O) or null data, y (N, O).
using LinearForward = void(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias,
                           Activation activation, View y);

// dx (+)= dy weight, dweight (+)= dy^T x, dbias (+)= column sums of dy. dy (N, O): the gradient of the sums, before the
// activation. Null targets are skipped. Takes dx.unrectified. A GPU reads x and weight while the kernel before this may
// still run: forward, which read them too, lies between whoever wrote them and this.
using LinearBackward = void(const ExecContext& exec, ConstView dy, ConstView x, ConstView weight, GradView dx,
                            GradView dweight, GradView dbias);

namespace cpu {
LinearForward linear_forward;
LinearBackward linear_backward;
}  // namespace cpu
namespace cuda {
LinearForward linear_forward;
LinearBackward linear_backward;
}  // namespace cuda

}  // namespace lockstep::kernels
