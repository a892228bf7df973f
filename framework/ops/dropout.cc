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
    LOCKSTEP_DISPATCH(dropout, context().exec(), backward.dy(), p, context().device_random(), op,
                      backward.target(0, shape, dtype));
  });
  return y;
}

}  // namespace lockstep
