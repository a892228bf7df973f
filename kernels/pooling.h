// Pooling over windows of an image, NHWC; f32 and f64, on a GPU f32 and bf16.
#pragma once

#include <cstdint>

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels {

struct Pool2dParams {
  std::int64_t kernel = 2;
  std::int64_t stride = 2;
  std::int64_t padding = 0;
};

// y = the largest of each window; padding never wins. x (N, H, W, C), y (N, OH, OW, C) with
// OH = (H + 2 padding - kernel) / stride + 1. Of equals the first in row order counts; a NaN is the largest of all.
using MaxPool2dForward = void(const ExecContext& exec, ConstView x, const Pool2dParams& params, View y);
// dx (+)= dy at the place of each window's largest element, found again in x. Takes dx.unrectified.
using MaxPool2dBackward = void(const ExecContext& exec, ConstView dy, ConstView x, const Pool2dParams& params,
                               GradView dx);

// y = the largest of each window of max(x + bias, 0); windows of `window`^2 elements lie side by side, and rows and
// columns that fill none are left out. x (N, H, W, C), bias (C) or null data, y (N, H / window, W / window, C).
// winners (u8, of the shape of y; null: not wanted): the number of the largest element within its window, in row order,
// or kNoWinner where it is not positive, so that no gradient passes.
inline constexpr std::uint8_t kNoWinner = 255;
inline constexpr std::int64_t kMostReluPoolWindow = 15;
using ReluMaxPool2dForward = void(const ExecContext& exec, ConstView x, ConstView bias, std::int64_t window, View y,
                                  View winners);
// dx = dy at the places of the winners and 0 elsewhere; dbias (+)= the sums of dx over all but the channels, unless
// null.
using ReluMaxPool2dBackward = void(const ExecContext& exec, ConstView dy, ConstView winners, std::int64_t window,
                                   View dx, GradView dbias);

// y = the mean of each window of kernel^2 elements, padding counted as zeros (torch's count_include_pad).
using AvgPool2dForward = void(const ExecContext& exec, ConstView x, const Pool2dParams& params, View y);
using AvgPool2dBackward = void(const ExecContext& exec, ConstView dy, const Pool2dParams& params, GradView dx);

// y (N, OH, OW, C) = the mean of each of OH x OW windows that cover x (N, H, W, C): window i of OH has the rows
// [floor(i H / OH), ceil((i + 1) H / OH)), columns alike (torch.nn.AdaptiveAvgPool2d). Where H is no multiple of OH,
// neighbouring windows overlap; where it is less, they repeat pixels.
using AdaptiveAvgPool2dForward = void(const ExecContext& exec, ConstView x, View y);
using AdaptiveAvgPool2dBackward = void(const ExecContext& exec, ConstView dy, GradView dx);

namespace cpu {
MaxPool2dForward max_pool2d_forward;
MaxPool2dBackward max_pool2d_backward;
ReluMaxPool2dForward relu_max_pool2d_forward;
ReluMaxPool2dBackward relu_max_pool2d_backward;
AvgPool2dForward avg_pool2d_forward;
AvgPool2dBackward avg_pool2d_backward;
AdaptiveAvgPool2dForward adaptive_avg_pool2d_forward;
AdaptiveAvgPool2dBackward adaptive_avg_pool2d_backward;
}  // namespace cpu
namespace cuda {
MaxPool2dForward max_pool2d_forward;
MaxPool2dBackward max_pool2d_backward;
ReluMaxPool2dForward relu_max_pool2d_forward;
ReluMaxPool2dBackward relu_max_pool2d_backward;
AvgPool2dForward avg_pool2d_forward;
AvgPool2dBackward avg_pool2d_backward;
AdaptiveAvgPool2dForward adaptive_avg_pool2d_forward;
AdaptiveAvgPool2dBackward adaptive_avg_pool2d_backward;
}  // namespace cuda

}  // namespace lockstep::kernels
