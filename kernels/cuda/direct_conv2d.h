// Convolution by plain loops: for few channels, where it is faster than a library made for many, and for whatever cuDNN
// has no plan for.
#pragma once

#include "kernels/conv2d.h"

namespace lockstep::kernels::cuda {

// As in kernels/conv2d.h, one pass each. relu: negative sums are written as 0. x, weight, bias, y and dy of one type,
// f32 or bf16.
void direct_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias, const Conv2dParams& params,
                    bool relu, View y);
void direct_data_gradient(const ExecContext& exec, ConstView dy, ConstView weight, const Conv2dParams& params,
                          GradView dx);
void direct_weight_gradient(const ExecContext& exec, ConstView dy, ConstView x, const Conv2dParams& params,
                            GradView dweight);

}  // namespace lockstep::kernels::cuda
