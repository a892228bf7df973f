#include "framework/ops/dropout.h"

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "kernels/dispatch.h"
#include "kernels/dropout.h"

namespace lockstep {

Tensor dropout(const Tensor& x, double p, std::uint32_t op) {
  expect(0 <= p && p < 1, "dropout: expected p in [0, 1), got {}", p);
  if (p == 0) return x;
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  LOCKSTEP_DISPATCH(dropout, context().exec(), x, p, context().device_random(), op, GradView{y, false});
  record("dropout", {&x}, {&y}, [shape = x.shape(), dtype = x.dtype(), p, op](Backward& backward) {
    // The output is positive only where x is, and the kernel keeps zeros: what is rectified stays so.
    const GradView dx =
        backward.rectified() ? backward.rectified_target(0, shape, dtype) : backward.target(0, shape, dtype);
    LOCKSTEP_DISPATCH(dropout, context().exec(), backward.dy(), p, context().device_random(), op, dx);
  });
  if (x.variable() != nullptr && x.variable()->rectified) mark_rectified(y);
  return y;
}

}  // namespace lockstep
