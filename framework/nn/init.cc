#include "framework/nn/init.h"

#include <cmath>

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "kernels/dispatch.h"
#include "kernels/elementwise.h"
#include "kernels/random.h"

namespace lockstep {

Tensor uniform(const Shape& shape, double low, double high) {
  Context& current = context();
  Tensor values = Tensor::empty(shape, current.master_dtype());
  LOCKSTEP_DISPATCH(fill_uniform, current.exec(), values, low, high, current.random.seed, current.next_random_stream());
  return values;
}

Tensor normal(const Shape& shape, double mean, double std) {
  Context& current = context();
  Tensor values = Tensor::empty(shape, current.master_dtype());
  LOCKSTEP_DISPATCH(fill_normal, current.exec(), values, mean, std, current.random.seed, current.next_random_stream());
  return values;
}

Tensor constant(const Shape& shape, double value) {
  Tensor values = Tensor::empty(shape, context().master_dtype());
  LOCKSTEP_DISPATCH(fill, context().exec(), values, value);
  return values;
}

Tensor fan_in_uniform(const Shape& shape, std::int64_t fan_in) {
  expect(fan_in > 0, "fan_in_uniform: expected at least 1 input, got {}", fan_in);
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  return uniform(shape, -bound, bound);
}

}  // namespace lockstep
