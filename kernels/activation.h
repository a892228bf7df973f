// Activation functions, elementwise. All views of a call have one shape; f32 and f64, on a GPU f32 and bf16. A NaN
// stays a NaN.
#pragma once

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels {

// y = max(x, 0)
using ReluForward = void(const ExecContext& exec, ConstView x, View y);
// dx (+)= dy where y > 0. Reads the output, so that the input need not be kept.
using ReluBackward = void(const ExecContext& exec, ConstView dy, ConstView y, GradView dx);

// GELU: y = x Phi(x), Phi the normal distribution function. Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
// gelu_erf:  Phi(x) = (1 + erf(x / sqrt(2))) / 2
// gelu_tanh: Phi(x) ~ (1 + tanh(u)) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3), the form that GPT-2 was trained with
using GeluForward = void(const ExecContext& exec, ConstView x, View y);
// dx (+)= dy (Phi(x) + x Phi'(x))
using GeluBackward = void(const ExecContext& exec, ConstView dy, ConstView x, GradView dx);

namespace cpu {
ReluForward relu_forward;
ReluBackward relu_backward;
GeluForward gelu_erf_forward;
GeluBackward gelu_erf_backward;
GeluForward gelu_tanh_forward;
GeluBackward gelu_tanh_backward;
}  // namespace cpu
namespace cuda {
ReluForward relu_forward;
ReluBackward relu_backward;
GeluForward gelu_erf_forward;
GeluBackward gelu_erf_backward;
GeluForward gelu_tanh_forward;
GeluBackward gelu_tanh_backward;
}  // namespace cuda

}  // namespace lockstep::kernels
