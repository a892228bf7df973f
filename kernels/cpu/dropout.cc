#include "kernels/dropout.h"

#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {

void cpu::dropout(const ExecContext& exec, ConstView x, double p, const RandomState* state, std::uint32_t op,
                  GradView y) {
  if (!y || x.numel() == 0) return;
  const std::int64_t samples = x.shape.rank() == 0 ? 1 : x.shape[0];
  const std::int64_t sample_size = x.numel() / samples;
  // Units of work: a large sample is split, small ones are taken together.
  constexpr std::int64_t kUnit = 256;
  const std::int64_t units = (sample_size + kUnit - 1) / kUnit;
  with_float_type(x.dtype, [&]<class T>(T) {
    const T* in = x.as<T>();
    T* out = y.view.as<T>();
    const T factor = static_cast<T>(1 / (1 - p));
    const auto threshold = static_cast<float>(p);
    with_write_mode(y, [&](auto accumulate) {
      parallel_for(exec, samples * units, kElementGrain / (8 * kUnit), [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t unit = first; unit < last; ++unit) {
          const std::int64_t sample = unit / units;
          const std::int64_t begin = unit % units * kUnit;
          const std::int64_t end = std::min(begin + kUnit, sample_size);
          T mask[kUnit];
          for (std::int64_t i = begin; i < end; i += 4) {
            const PhiloxBlock draws = random_block(*state, op, sample, i / 4);
            for (std::int64_t k = 0; k < 4; ++k) {
              mask[i - begin + k] = to_unit(draws.word[k]) < threshold ? T(0) : factor;
            }
          }
          const T* source = in + sample * sample_size;
          T* target = out + sample * sample_size;
#pragma omp simd
          for (std::int64_t i = begin; i < end; ++i) write<accumulate>(target[i], source[i] * mask[i - begin]);
        }
      });
    });
  });
}

}  // namespace lockstep::kernels
