#include "framework/ops/conv2d.h"

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "kernels/dispatch.h"

namespace lockstep {

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dParams& params) {
  expect(x.shape().rank() == 4 && weight.shape().rank() == 4 && x.dim(3) == weight.dim(3),
         "conv2d: expected x (N, H, W, C) and weight (O, KH, KW, C), got x {} and weight {}", x.shape(),
         weight.shape());
  expect(!bias.defined() || bias.shape() == Shape{weight.dim(0)}, "conv2d: expected bias ({}), got {}", weight.dim(0),
         bias.shape());
  expect(x.dtype() == weight.dtype() && (!bias.defined() || bias.dtype() == weight.dtype()),
         "conv2d: expected x, weight and bias of one type, got {}, {} and {}", dtype_name(x.dtype()),
         dtype_name(weight.dtype()), dtype_name(bias.dtype()));
  expect(params.stride >= 1 && params.padding >= 0,
         "conv2d: expected a stride of at least 1 and a padding of at least 0, got {} and {}", params.stride,
         params.padding);
  const std::int64_t height = x.dim(1) + 2 * params.padding;
  const std::int64_t width = x.dim(2) + 2 * params.padding;
  expect(height >= weight.dim(1) && width >= weight.dim(2),
         "conv2d: expected an image of at least the kernel {}, got {} with padding {}", weight.shape(), x.shape(),
         params.padding);

  Tensor y = Tensor::empty({x.dim(0), (height - weight.dim(1)) / params.stride + 1,
                            (width - weight.dim(2)) / params.stride + 1, weight.dim(0)},
                           x.dtype());
  LOCKSTEP_DISPATCH(conv2d_forward, context().exec(), x, weight, bias, params, y);
  record("conv2d", {&x, &weight, &bias}, {&y}, [x = x.detach(), weight = weight.detach(), params](Backward& backward) {
    const GradView dx = backward.target(0, x.shape(), x.dtype());
    const GradView dweight = backward.target(1, weight.shape(), weight.dtype());
    const GradView dbias = backward.target(2, {weight.dim(0)}, weight.dtype());
    LOCKSTEP_DISPATCH(conv2d_backward, context().exec(), backward.dy(), x, weight, params, dx, dweight, dbias);
  });
  return y;
}

}  // namespace lockstep
