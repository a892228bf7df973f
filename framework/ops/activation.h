// Activation functions, elementwise; x of any shape, f32 or f64.
#pragma once

#include "framework/core/tensor.h"

namespace lockstep {

// max(x, 0). Saves the output.
Tensor relu(const Tensor& x);
// x Phi(x), Phi the normal distribution function (Hendrycks and Gimpel, 2016). Saves x.
Tensor gelu_erf(const Tensor& x);
// GELU with Phi approximated by a hyperbolic tangent, as in GPT-2. Saves x.
Tensor gelu_tanh(const Tensor& x);

}  // namespace lockstep
