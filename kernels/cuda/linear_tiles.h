// Linear layers by tiles that are all computed at once: for small batches, where a step is a matter of latency and of
// the number of kernels. A library's kernels are made for large matrices.
#pragma once

#include "kernels/linear.h"

namespace lockstep::kernels::cuda {

// Whether the functions below can do it: nothing is empty nor very large.
bool linear_tiles_fit(const ConstView& x, const Shape& weight);

// As in kernels/linear.h. Backward is one kernel and rectifies the gradient of x where that is asked for; it takes a
// bias only together with a weight.
void linear_tiles_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias, bool relu, View y);
void linear_tiles_backward(const ExecContext& exec, ConstView dy, ConstView x, ConstView weight, GradView dx,
                           GradView dweight, GradView dbias);

}  // namespace lockstep::kernels::cuda
