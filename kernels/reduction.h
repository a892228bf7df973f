// Sums over all elements; f32 and f64, on a GPU f32 and bf16. Added in fixed blocks that are combined in a fixed order:
// the result does not depend on the number of threads, and the error in f32 grows with the size of a block, not of the
// tensor.
#pragma once

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels {

// y = factor * sum of x. x: any shape, y: one element, on a GPU f32 or bf16. A mean is a sum with the factor
// 1 / x.numel().
using Sum = void(const ExecContext& exec, ConstView x, double factor, View y);
// dx (+)= factor * dy in every element. dy: one element.
using SumBackward = void(const ExecContext& exec, ConstView dy, double factor, GradView dx);

namespace cpu {
Sum sum;
SumBackward sum_backward;
}  // namespace cpu
namespace cuda {
Sum sum;
SumBackward sum_backward;
}  // namespace cuda

}  // namespace lockstep::kernels
