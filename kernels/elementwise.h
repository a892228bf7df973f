// Elementwise arithmetic. All views have one shape and type; f32 and f64, on a GPU f32 and bf16.
#pragma once

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels {

// y = value
using Fill = void(const ExecContext& exec, View y, double value);
// target = source, or target += source. One of them may be bf16 where the other is f32: it converts, rounding to
// nearest, ties to even.
using Accumulate = void(const ExecContext& exec, ConstView source, GradView target);
// y = a + b
using Add = void(const ExecContext& exec, ConstView a, ConstView b, View y);
// y = a * b. Backward is multiply_backward for each factor: da (+)= dy * b.
using Multiply = void(const ExecContext& exec, ConstView a, ConstView b, View y);
using MultiplyBackward = void(const ExecContext& exec, ConstView dy, ConstView other, GradView d);
// y (+)= factor * x. Its own backward: dx (+)= factor * dy. On a GPU the types may differ.
using Scale = void(const ExecContext& exec, ConstView x, double factor, GradView y);

namespace cpu {
Fill fill;
Accumulate accumulate;
Add add;
Multiply multiply;
MultiplyBackward multiply_backward;
Scale scale;
}  // namespace cpu
namespace cuda {
Fill fill;
Accumulate accumulate;
Add add;
Multiply multiply;
MultiplyBackward multiply_backward;
Scale scale;
}  // namespace cuda

}  // namespace lockstep::kernels
