// Convolution where channels are few: the part of the image that a block needs lies in shared memory, and the products
// are gathered from it. A library made for many channels would pad them in memory first.
#pragma once

#include "kernels/conv2d.h"

namespace lockstep::kernels::cuda {

// Whether a pass can be done: channels and products few enough.
using PatchFits = bool(const Shape& x, const Shape& weight, const Shape& y, const Conv2dParams& params);

// As in kernels/conv2d.h, one pass each. relu: negative sums are written as 0. The gradients of weight and bias come in
// one pass; a null dbias is skipped.
using PatchForward = void(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias,
                          const Conv2dParams& params, bool relu, View y);
using PatchDataGradient = void(const ExecContext& exec, ConstView dy, ConstView weight, const Conv2dParams& params,
                               GradView dx);
using PatchWeightGradient = void(const ExecContext& exec, ConstView dy, ConstView x, const Conv2dParams& params,
                                 GradView dweight, GradView dbias);

struct PatchConv2d {
  PatchFits *forward_fits, *data_gradient_fits, *weight_gradient_fits;
  PatchForward* forward;
  PatchDataGradient* data_gradient;
  PatchWeightGradient* weight_gradient;
};

// Tiles of products on tensor cores; x, weight, bias, y and dy are bf16.
extern const PatchConv2d kPatchTiles;
// Without tensor cores, which round the products of f32: all is f32, for the weight gradient also bf16.
extern const PatchConv2d kPatchLoops;

// Of kPatchTiles, in a file of their own.
PatchFits tiles_weight_gradient_fits;
PatchWeightGradient tiles_weight_gradient;

}  // namespace lockstep::kernels::cuda
