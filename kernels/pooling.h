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
// dx (+)= dy at the place of each window's largest element, found again in x.
using MaxPool2dBackward = void(const ExecContext& exec, ConstView dy, ConstView x, const Pool2dParams& params,
                               GradView dx);

// y = the mean of each window of kernel^2 elements, padding counted as zeros (torch's count_include_pad).
using AvgPool2dForward = void(const ExecContext& exec, ConstView x, const Pool2dParams& params, View y);
using AvgPool2dBackward = void(const ExecContext& exec, ConstView dy, const Pool2dParams& params, GradView dx);

namespace cpu {
MaxPool2dForward max_pool2d_forward;
MaxPool2dBackward max_pool2d_backward;
AvgPool2dForward avg_pool2d_forward;
AvgPool2dBackward avg_pool2d_backward;
}  // namespace cpu
namespace cuda {
MaxPool2dForward max_pool2d_forward;
MaxPool2dBackward max_pool2d_backward;
AvgPool2dForward avg_pool2d_forward;
AvgPool2dBackward avg_pool2d_backward;
}  // namespace cuda

}  // namespace lockstep::kernels
