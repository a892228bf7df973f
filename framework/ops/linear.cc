#include "framework/ops/linear.h"

#include <vector>

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "kernels/dispatch.h"
#include "kernels/linear.h"

namespace lockstep {

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation) {
  expect(x.shape().rank() >= 1 && weight.shape().rank() == 2 && x.dim(-1) == weight.dim(1),
         "linear: expected x (..., C) and weight (O, C), got x {} and weight {}", x.shape(), weight.shape());
  expect(!bias.defined() || bias.shape() == Shape{weight.dim(0)}, "linear: expected bias ({}), got {}", weight.dim(0),
         bias.shape());
  expect(x.dtype() == weight.dtype() && (!bias.defined() || bias.dtype() == weight.dtype()),
         "linear: expected x, weight and bias of one type, got {}, {} and {}", dtype_name(x.dtype()),
         dtype_name(weight.dtype()), dtype_name(bias.dtype()));

  std::vector<std::int64_t> extents(x.shape().span().begin(), x.shape().span().end());
  extents.back() = 1;
  const std::int64_t rows = Shape(extents).numel();
  extents.back() = weight.dim(0);
  Tensor y = Tensor::empty(Shape(extents), x.dtype());
  const Tensor x2 = x.detach().reshape({rows, x.dim(-1)});
  LOCKSTEP_DISPATCH(linear_forward, context().exec(), x2, weight, bias, activation, y.reshape({rows, weight.dim(0)}));

  const bool has_relu = activation == Activation::relu;
  record(has_relu ? "linear_relu" : "linear", {&x, &weight, &bias}, {&y},
         [x2, weight = weight.detach(), output = has_relu ? y.detach() : Tensor{}](Backward& backward) {
           const GradView dweight = backward.target(1, weight.shape(), weight.dtype());
           GradView dbias = backward.target(2, {weight.dim(0)}, weight.dtype());
           const Tensor dy = output.defined() ? gradient_before_relu(backward, output, dbias) : backward.dy();
           const GradView dx = backward.rectified_target(0, x2.shape(), x2.dtype());
           LOCKSTEP_DISPATCH(linear_backward, context().exec(), dy.reshape({x2.dim(0), weight.dim(0)}), x2, weight, dx,
                             dweight, dbias);
         });
  if (has_relu) mark_rectified(y);
  return y;
}

}  // namespace lockstep
