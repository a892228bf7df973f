#include "framework/ops/reduction.h"

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "kernels/dispatch.h"
#include "kernels/reduction.h"

namespace lockstep {
namespace {

Tensor scaled_sum(const char* op, const Tensor& x, double factor) {
  Tensor y = Tensor::empty({}, x.dtype());
  LOCKSTEP_DISPATCH(sum, context().exec(), x, factor, y);
  record(op, {&x}, {&y}, [shape = x.shape(), dtype = x.dtype(), factor](Backward& backward) {
    LOCKSTEP_DISPATCH(sum_backward, context().exec(), backward.dy(), factor, backward.target(0, shape, dtype));
  });
  return y;
}

}  // namespace

Tensor sum(const Tensor& x) { return scaled_sum("sum", x, 1.0); }

Tensor mean(const Tensor& x) { return scaled_sum("mean", x, 1.0 / static_cast<double>(x.numel())); }

}  // namespace lockstep
