// Activation functions, elementwise. All views of a call have one shape; f32 and f64, on a GPU f32 and bf16. A NaN
// stays a NaN.
#pragma once

#include <cstdint>

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels {

// What a layer does to its sums before it writes them.
enum class Activation : std::uint8_t { none, relu };

// y = max(x, 0)
using ReluForward = void(const ExecContext& exec, ConstView x, View y);
// dx (+)= dy where y > 0. Reads the output, so that the input need not be kept. dx may be dy.
using ReluBackward = void(const ExecContext& exec, ConstView dy, ConstView y, GradView dx);
// For y = max(x + bias, 0), y (..., C): dx = dy where y > 0, and dbias (+)= the sum of dx over all but the last
// dimension, in one pass. A null dbias is skipped. dx may be dy.
using ReluBiasBackward = void(const ExecContext& exec, ConstView dy, ConstView y, View dx, GradView dbias);

// GELU: y = x Phi(x), Phi the normal distribution function. Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
// gelu_erf:  Phi(x) = (1 + erf(x / sqrt(2))) / 2
// gelu_tanh: Phi(x) ~ (1 + tanh(u)) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3), the form that GPT-2 was trained with
using GeluForward = void(const ExecContext& exec, ConstView x, View y);
// dx (+)= dy (Phi(x) + x Phi'(x))
using GeluBackward = void(const ExecContext& exec, ConstView dy, ConstView x, GradView dx);

namespace cpu {
ReluForward relu_forward;
ReluBackward relu_backward;
ReluBiasBackward relu_bias_backward;
GeluForward gelu_erf_forward;
GeluBackward gelu_erf_backward;
GeluForward gelu_tanh_forward;
GeluBackward gelu_tanh_backward;
}  // namespace cpu
namespace cuda {
ReluForward relu_forward;
ReluBackward relu_backward;
ReluBiasBackward relu_bias_backward;
GeluForward gelu_erf_forward;
GeluBackward gelu_erf_backward;
GeluForward gelu_tanh_forward;
GeluBackward gelu_tanh_backward;
}  // namespace cuda

}  // namespace lockstep::kernels
