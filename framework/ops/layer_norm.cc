#include "framework/ops/layer_norm.h"

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "kernels/dispatch.h"
#include "kernels/layer_norm.h"

namespace lockstep {

Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  expect(x.shape().rank() >= 1 && gamma.shape() == Shape{x.dim(-1)} && beta.shape() == gamma.shape(),
         "layer_norm: expected x (..., C), gamma (C) and beta (C), got {}, {} and {}", x.shape(), gamma.shape(),
         beta.shape());
  expect(gamma.dtype() == x.dtype() && beta.dtype() == x.dtype(),
         "layer_norm: expected x, gamma and beta of one type, got {}, {} and {}", dtype_name(x.dtype()),
         dtype_name(gamma.dtype()), dtype_name(beta.dtype()));

  const std::int64_t columns = x.dim(-1);
  const std::int64_t rows = columns == 0 ? 0 : x.numel() / columns;
  const Tensor x2 = x.detach().reshape({rows, columns});
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  const Tensor mean = Tensor::empty({rows}, statistics_dtype(x.dtype()));
  const Tensor rstd = Tensor::empty({rows}, statistics_dtype(x.dtype()));
  LOCKSTEP_DISPATCH(layer_norm_forward, context().exec(), x2, gamma, beta, eps, y, mean, rstd);

  record("layer_norm", {&x, &gamma, &beta}, {&y}, [x2, gamma = gamma.detach(), mean, rstd](Backward& backward) {
    const GradView dx = backward.target(0, x2.shape(), x2.dtype());
    const GradView dgamma = backward.target(1, gamma.shape(), gamma.dtype());
    const GradView dbeta = backward.target(2, gamma.shape(), gamma.dtype());
    LOCKSTEP_DISPATCH(layer_norm_backward, context().exec(), backward.dy(), x2, gamma, mean, rstd, dx, dgamma, dbeta);
  });
  return y;
}

}  // namespace lockstep
