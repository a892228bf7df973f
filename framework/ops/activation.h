// Activation functions, elementwise; x of any shape, f32, bf16 or f64.
#pragma once

#include "framework/core/tensor.h"
#include "kernels/activation.h"

namespace lockstep {

class Backward;  // framework/autograd/tape.h

using kernels::Activation;

// max(x, 0). Saves the output.
Tensor relu(const Tensor& x);
// x Phi(x), Phi the normal distribution function (Hendrycks and Gimpel, 2016). Saves x.
Tensor gelu_erf(const Tensor& x);
// GELU with Phi approximated by a hyperbolic tangent, as in GPT-2. Saves x.
Tensor gelu_tanh(const Tensor& x);

// For the backward functions of ops that end in a ReLU, whose output was y (..., C): the gradient before it. Where it
// takes a pass over memory to rectify it, that pass also gives the gradient of a bias (C), and `dbias` becomes null.
Tensor gradient_before_relu(const Backward& backward, const Tensor& y, GradView& dbias);

}  // namespace lockstep
