// A vector added to every row of a matrix, where no library does it on the way, and its gradient.
#pragma once

#include "kernels/activation.h"
#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels::cuda {

// y[..., c] = activation(y[..., c] + bias[c]). y (..., C) and bias (C) of one type.
void add_bias(const ExecContext& exec, ConstView bias, Activation activation, View y);

// dbias (+)= the sum of dy (..., C) over all but the last dimension.
void bias_gradient(const ExecContext& exec, ConstView dy, GradView dbias);

}  // namespace lockstep::kernels::cuda
