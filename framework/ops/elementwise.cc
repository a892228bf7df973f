#include "framework/ops/elementwise.h"

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "kernels/dispatch.h"
#include "kernels/elementwise.h"

namespace lockstep {
namespace {

void expect_same(const char* op, const Tensor& a, const Tensor& b) {
  expect(a.shape() == b.shape() && a.dtype() == b.dtype(),
         "{}: expected tensors of one shape and type, got {} {} and {} {}", op, a.shape(), dtype_name(a.dtype()),
         b.shape(), dtype_name(b.dtype()));
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  expect_same("add", a, b);
  Tensor y = Tensor::empty(a.shape(), a.dtype());
  LOCKSTEP_DISPATCH(add, context().exec(), a, b, y);
  record("add", {&a, &b}, {&y}, [](Backward& backward) {
    backward.pass(0, backward.dy());
    backward.pass(1, backward.dy());
  });
  return y;
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  expect_same("multiply", a, b);
  Tensor y = Tensor::empty(a.shape(), a.dtype());
  LOCKSTEP_DISPATCH(multiply, context().exec(), a, b, y);
  record("multiply", {&a, &b}, {&y}, [a = a.detach(), b = b.detach()](Backward& backward) {
    const Tensor& dy = backward.dy();
    if (const GradView da = backward.target(0, a.shape(), a.dtype())) {
      LOCKSTEP_DISPATCH(multiply_backward, context().exec(), dy, b, da);
    }
    if (const GradView db = backward.target(1, b.shape(), b.dtype())) {
      LOCKSTEP_DISPATCH(multiply_backward, context().exec(), dy, a, db);
    }
  });
  return y;
}

Tensor scale(const Tensor& x, double factor) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  LOCKSTEP_DISPATCH(scale, context().exec(), x, factor, GradView{y, false});
  record("scale", {&x}, {&y}, [shape = x.shape(), dtype = x.dtype(), factor](Backward& backward) {
    LOCKSTEP_DISPATCH(scale, context().exec(), backward.dy(), factor, backward.target(0, shape, dtype));
  });
  return y;
}

}  // namespace lockstep
