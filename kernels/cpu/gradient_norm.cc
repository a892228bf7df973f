#include "kernels/gradient_norm.h"

#include <cmath>

#include "kernels/cpu/sum.h"

namespace lockstep::kernels {

void cpu::sum_of_squares(const ExecContext& exec, ConstView gradients, View partials) {
  const std::int64_t n = gradients.numel();
  with_float_type(gradients.dtype, [&]<class T>(T) {
    const T* in = gradients.as<T>();
    double* out = partials.as<double>();
    parallel_for(exec, partials.numel(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = begin; b < end; ++b) {
        out[b] = lane_sum<double>(b * kNormBlock, std::min(n, (b + 1) * kNormBlock), [in](std::int64_t i) {
          const auto value = static_cast<double>(in[i]);
          return value * value;
        });
      }
    });
  });
}

void cpu::combine_norm(const ExecContext&, ConstView partials, double max_norm, View norm, View clip_factor) {
  const double* in = partials.as<double>();
  double sum = 0;
  for (std::int64_t b = 0; b < partials.numel(); ++b) sum += in[b];
  const double root = std::sqrt(sum);
  const double ratio = max_norm / (root + 1e-6);
  *norm.as<double>() = root;
  *clip_factor.as<double>() = max_norm == 0 || ratio > 1 ? 1 : ratio;
}

}  // namespace lockstep::kernels
