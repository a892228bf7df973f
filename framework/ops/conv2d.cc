#include "framework/ops/conv2d.h"

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "kernels/dispatch.h"
#include "kernels/pooling.h"

namespace lockstep {

namespace {

// Shape of the result; throws on arguments that do not fit.
Shape convolved(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dParams& params) {
  expect(x.shape().rank() == 4 && weight.shape().rank() == 4 && x.dim(3) == weight.dim(3),
         "{}: expected x (N, H, W, C) and weight (O, KH, KW, C), got x {} and weight {}", op, x.shape(),
         weight.shape());
  expect(!bias.defined() || bias.shape() == Shape{weight.dim(0)}, "{}: expected bias ({}), got {}", op, weight.dim(0),
         bias.shape());
  expect(x.dtype() == weight.dtype() && (!bias.defined() || bias.dtype() == weight.dtype()),
         "{}: expected x, weight and bias of one type, got {}, {} and {}", op, dtype_name(x.dtype()),
         dtype_name(weight.dtype()), dtype_name(bias.dtype()));
  expect(params.stride >= 1 && params.padding >= 0,
         "{}: expected a stride of at least 1 and a padding of at least 0, got {} and {}", op, params.stride,
         params.padding);
  const std::int64_t height = x.dim(1) + 2 * params.padding;
  const std::int64_t width = x.dim(2) + 2 * params.padding;
  expect(height >= weight.dim(1) && width >= weight.dim(2),
         "{}: expected an image of at least the kernel {}, got {} with padding {}", op, weight.shape(), x.shape(),
         params.padding);
  return {x.dim(0), (height - weight.dim(1)) / params.stride + 1, (width - weight.dim(2)) / params.stride + 1,
          weight.dim(0)};
}

// The gradients of x and weight, and that of the bias unless `dbias` is null; dy is the gradient before any activation.
void backward_to_inputs(Backward& backward, const Tensor& dy, const Tensor& x, const Tensor& weight,
                        const Conv2dParams& params, const GradView& dbias) {
  const GradView dx = backward.rectified_target(0, x.shape(), x.dtype());
  const GradView dweight = backward.target(1, weight.shape(), weight.dtype());
  LOCKSTEP_DISPATCH(conv2d_backward, context().exec(), dy, x, weight, params, dx, dweight, dbias);
}

GradView bias_target(Backward& backward, const Tensor& weight) {
  return backward.target(2, {weight.dim(0)}, weight.dtype());
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dParams& params,
              Activation activation) {
  Tensor y = Tensor::empty(convolved("conv2d", x, weight, bias, params), x.dtype());
  LOCKSTEP_DISPATCH(conv2d_forward, context().exec(), x, weight, bias, params, activation, y);
  const bool has_relu = activation == Activation::relu;
  record(has_relu ? "conv2d_relu" : "conv2d", {&x, &weight, &bias}, {&y},
         [x = x.detach(), weight = weight.detach(), params,
          output = has_relu ? y.detach() : Tensor{}](Backward& backward) {
           GradView dbias = bias_target(backward, weight);
           const Tensor dy = output.defined() ? gradient_before_relu(backward, output, dbias) : backward.dy();
           backward_to_inputs(backward, dy, x, weight, params, dbias);
         });
  if (has_relu) mark_rectified(y);
  return y;
}

Tensor conv2d_relu_max_pool2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dParams& params,
                              std::int64_t window) {
  constexpr const char* op = "conv2d_relu_max_pool2d";
  const Shape shape = convolved(op, x, weight, bias, params);
  expect(window >= 1 && window <= kernels::kMostReluPoolWindow && window <= shape[1] && window <= shape[2],
         "{}: expected a window in [1, {}] of at most {} x {}, got {}", op, kernels::kMostReluPoolWindow, shape[1],
         shape[2], window);
  const Shape pooled = {shape[0], shape[1] / window, shape[2] / window, shape[3]};
  Tensor y = Tensor::empty(pooled, x.dtype());
  const Tensor winners = needs_grad({&x, &weight, &bias}) ? Tensor::empty(pooled, DType::u8) : Tensor{};
  {
    // The bias is the same in a whole window: adding it after the pooling is a quarter of the work, or less.
    const Tensor sums = Tensor::empty(shape, x.dtype());
    LOCKSTEP_DISPATCH(conv2d_forward, context().exec(), x, weight, ConstView{}, params, Activation::none, sums);
    LOCKSTEP_DISPATCH(relu_max_pool2d_forward, context().exec(), sums, bias, window, y, winners);
  }
  record(op, {&x, &weight, &bias}, {&y},
         [x = x.detach(), weight = weight.detach(), params, window, shape, winners](Backward& backward) {
           const Tensor dsums = Tensor::empty(shape, x.dtype());
           LOCKSTEP_DISPATCH(relu_max_pool2d_backward, context().exec(), backward.dy(), winners, window, dsums,
                             bias_target(backward, weight));
           backward_to_inputs(backward, dsums, x, weight, params, {});
         });
  return y;
}

}  // namespace lockstep
