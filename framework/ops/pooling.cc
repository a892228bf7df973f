#include "framework/ops/pooling.h"

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "kernels/dispatch.h"

namespace lockstep {
namespace {

Tensor pooled_like(const char* op, const Tensor& x, const Pool2dParams& params) {
  expect(x.shape().rank() == 4, "{}: expected x (N, H, W, C), got {}", op, x.shape());
  expect(params.kernel >= 1 && params.stride >= 1, "{}: expected kernel and stride of at least 1, got {} and {}", op,
         params.kernel, params.stride);
  expect(params.padding >= 0 && 2 * params.padding <= params.kernel,
         "{}: expected a padding of at most half the kernel {}, got {}", op, params.kernel, params.padding);
  const std::int64_t height = x.dim(1) + 2 * params.padding;
  const std::int64_t width = x.dim(2) + 2 * params.padding;
  expect(height >= params.kernel && width >= params.kernel, "{}: expected an image of at least the kernel {}, got {}",
         op, params.kernel, x.shape());
  return Tensor::empty(
      {x.dim(0), (height - params.kernel) / params.stride + 1, (width - params.kernel) / params.stride + 1, x.dim(3)},
      x.dtype());
}

}  // namespace

Tensor max_pool2d(const Tensor& x, const Pool2dParams& params) {
  Tensor y = pooled_like("max_pool2d", x, params);
  LOCKSTEP_DISPATCH(max_pool2d_forward, context().exec(), x, params, y);
  record("max_pool2d", {&x}, {&y}, [x = x.detach(), params](Backward& backward) {
    LOCKSTEP_DISPATCH(max_pool2d_backward, context().exec(), backward.dy(), x, params,
                      backward.rectified_target(0, x.shape(), x.dtype()));
  });
  return y;
}

Tensor avg_pool2d(const Tensor& x, const Pool2dParams& params) {
  Tensor y = pooled_like("avg_pool2d", x, params);
  LOCKSTEP_DISPATCH(avg_pool2d_forward, context().exec(), x, params, y);
  record("avg_pool2d", {&x}, {&y}, [shape = x.shape(), dtype = x.dtype(), params](Backward& backward) {
    LOCKSTEP_DISPATCH(avg_pool2d_backward, context().exec(), backward.dy(), params, backward.target(0, shape, dtype));
  });
  return y;
}

Tensor adaptive_avg_pool2d(const Tensor& x, std::int64_t height, std::int64_t width) {
  expect(x.shape().rank() == 4 && x.dim(1) >= 1 && x.dim(2) >= 1 && height >= 1 && width >= 1,
         "adaptive_avg_pool2d: expected x (N, H, W, C) and sizes of at least 1, got {} and {} x {}", x.shape(), height,
         width);
  if (x.dim(1) == height && x.dim(2) == width) return x;
  Tensor y = Tensor::empty({x.dim(0), height, width, x.dim(3)}, x.dtype());
  LOCKSTEP_DISPATCH(adaptive_avg_pool2d_forward, context().exec(), x, y);
  record("adaptive_avg_pool2d", {&x}, {&y}, [shape = x.shape(), dtype = x.dtype()](Backward& backward) {
    LOCKSTEP_DISPATCH(adaptive_avg_pool2d_backward, context().exec(), backward.dy(), backward.target(0, shape, dtype));
  });
  return y;
}

}  // namespace lockstep
