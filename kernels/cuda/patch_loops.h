// The same as patch_conv2d.h without tensor cores: in f32, whose products they round. The weight gradient also of bf16.
#pragma once

#include "kernels/conv2d.h"

namespace lockstep::kernels::cuda {

// Whether the functions below can do it: channels and products few enough.
bool loops_forward_fits(const Shape& x, const Shape& weight, const Shape& y, const Conv2dParams& params);
bool loops_data_gradient_fits(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params);
bool loops_weight_gradient_fits(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params);

void loops_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias, const Conv2dParams& params,
                   bool relu, View y);
void loops_data_gradient(const ExecContext& exec, ConstView dy, ConstView weight, const Conv2dParams& params,
                         GradView dx);
void loops_weight_gradient(const ExecContext& exec, ConstView dy, ConstView x, const Conv2dParams& params,
                           GradView dweight, GradView dbias);

}  // namespace lockstep::kernels::cuda
