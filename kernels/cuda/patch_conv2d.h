// Convolution on tensor cores where channels are few: the part of the image that a block needs lies in shared memory,
// and the tiles of the product are gathered from it. A library made for many channels would pad them in memory first.
#pragma once

#include "kernels/conv2d.h"

namespace lockstep::kernels::cuda {

// Whether the functions below can do it: x, weight, bias, y and dy bf16, products of a small enough number of channels.
bool patch_forward_fits(const Shape& x, const Shape& weight, const Shape& y, const Conv2dParams& params);
bool patch_data_gradient_fits(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params);
bool patch_weight_gradient_fits(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params);

// As in kernels/conv2d.h, one pass each. relu: negative sums are written as 0. The gradients of weight and bias come in
// one pass; a null dbias is skipped.
void patch_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias, const Conv2dParams& params,
                   bool relu, View y);
void patch_data_gradient(const ExecContext& exec, ConstView dy, ConstView weight, const Conv2dParams& params,
                         GradView dx);
void patch_weight_gradient(const ExecContext& exec, ConstView dy, ConstView x, const Conv2dParams& params,
                           GradView dweight, GradView dbias);

}  // namespace lockstep::kernels::cuda
