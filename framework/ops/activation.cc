#include "framework/ops/activation.h"

#include <utility>

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "kernels/activation.h"
#include "kernels/dispatch.h"

namespace lockstep {

Tensor relu(const Tensor& x) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  LOCKSTEP_DISPATCH(relu_forward, context().exec(), x, y);
  record("relu", {&x}, {&y}, [y = y.detach()](Backward& backward) {
    if (backward.rectified()) {
      backward.pass(0, backward.dy());
    } else {
      LOCKSTEP_DISPATCH(relu_backward, context().exec(), backward.dy(), y, backward.target(0, y.shape(), y.dtype()));
    }
  });
  mark_rectified(y);
  return y;
}

Tensor gradient_before_relu(const Backward& backward, const Tensor& y, GradView& dbias) {
  if (backward.rectified()) return backward.dy();
  Tensor gradient = Tensor::empty(y.shape(), y.dtype());
  LOCKSTEP_DISPATCH(relu_bias_backward, context().exec(), backward.dy(), y, gradient, std::exchange(dbias, {}));
  return gradient;
}

Tensor gelu_erf(const Tensor& x) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  LOCKSTEP_DISPATCH(gelu_erf_forward, context().exec(), x, y);
  record("gelu_erf", {&x}, {&y}, [x = x.detach()](Backward& backward) {
    LOCKSTEP_DISPATCH(gelu_erf_backward, context().exec(), backward.dy(), x, backward.target(0, x.shape(), x.dtype()));
  });
  return y;
}

Tensor gelu_tanh(const Tensor& x) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  LOCKSTEP_DISPATCH(gelu_tanh_forward, context().exec(), x, y);
  record("gelu_tanh", {&x}, {&y}, [x = x.detach()](Backward& backward) {
    LOCKSTEP_DISPATCH(gelu_tanh_backward, context().exec(), backward.dy(), x, backward.target(0, x.shape(), x.dtype()));
  });
  return y;
}

}  // namespace lockstep
