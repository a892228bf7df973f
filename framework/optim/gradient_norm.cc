#include "framework/optim/gradient_norm.h"

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "kernels/dispatch.h"
#include "kernels/gradient_norm.h"

namespace lockstep {

GradientNorm::GradientNorm(const ParameterArena& arena, double max_norm)
    : arena_(arena),
      max_norm_(max_norm),
      partials_(Tensor::zeros({(arena.whole().count + kernels::kNormBlock - 1) / kernels::kNormBlock}, DType::f64)),
      norm_(Tensor::zeros({}, DType::f64)),
      clip_factor_(Tensor::zeros({}, DType::f64)) {
  expect(max_norm >= 0, "gradient norm: expected a largest norm of at least 0, got {}", max_norm);
}

void GradientNorm::measure(Range bucket) {
  static_assert(ParameterArena::kBucketAlignment % kernels::kNormBlock == 0);
  const std::int64_t first = bucket.offset / kernels::kNormBlock;
  const std::int64_t blocks = (bucket.count + kernels::kNormBlock - 1) / kernels::kNormBlock;
  LOCKSTEP_DISPATCH(sum_of_squares, context().exec(), slice(arena_.grads(), bucket), slice(partials_, {first, blocks}));
}

void GradientNorm::combine() {
  LOCKSTEP_DISPATCH(combine_norm, context().exec(), partials_, max_norm_, norm_, clip_factor_);
}

void GradientNorm::measure() {
  measure(arena_.whole());
  combine();
}

}  // namespace lockstep
