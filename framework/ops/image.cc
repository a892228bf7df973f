#include "framework/ops/image.h"

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "kernels/dispatch.h"
#include "kernels/image.h"

namespace lockstep {

Tensor normalize(const Tensor& samples, std::span<const float> mean, std::span<const float> stddev) {
  expect(samples.dtype() == DType::u8 || samples.dtype() == DType::f32, "normalize: expected u8 or f32 samples, got {}",
         dtype_name(samples.dtype()));
  expect(mean.size() == stddev.size() && (mean.empty() || (samples.shape().rank() > 0 &&
                                                           static_cast<std::int64_t>(mean.size()) == samples.dim(-1))),
         "normalize: expected a mean and a stddev for each channel of {}, got {} and {}", samples.shape(), mean.size(),
         stddev.size());
  const Tensor y = Tensor::empty(samples.shape(), context().dtype());
  LOCKSTEP_DISPATCH(normalize, context().exec(), samples, mean, stddev, y);
  return y;
}

}  // namespace lockstep
