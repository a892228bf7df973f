#include "kernels/random.h"

#include <cmath>
#include <numbers>

#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

// Calls draw(block of four words, four doubles to fill) for every four elements of x.
template <class Draw>
void fill_blocks(const ExecContext& exec, View x, std::uint64_t seed, std::uint32_t stream, Draw draw) {
  // The last step that there is: no training step draws the same numbers from this seed.
  const RandomState state{.seed = seed, .step = ~std::uint64_t{0}, .sample_offset = 0};
  const std::int64_t n = x.numel();
  cpu::with_float_type(x.dtype, [&]<class T>(T) {
    T* out = x.as<T>();
    cpu::parallel_for(exec, (n + 3) / 4, cpu::kElementGrain / 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        double values[4];
        draw(random_block(state, stream, 0, block), values);
        for (std::int64_t i = 4 * block; i < std::min(n, 4 * block + 4); ++i) {
          out[i] = static_cast<T>(values[i - 4 * block]);
        }
      }
    });
  });
}

}  // namespace

void cpu::fill_uniform(const ExecContext& exec, View x, double low, double high, std::uint64_t seed,
                       std::uint32_t stream) {
  fill_blocks(exec, x, seed, stream, [=](const PhiloxBlock& words, double* values) {
    for (int i = 0; i < 4; ++i) values[i] = low + (high - low) * static_cast<double>(to_unit(words.word[i]));
  });
}

void cpu::fill_normal(const ExecContext& exec, View x, double mean, double std, std::uint64_t seed,
                      std::uint32_t stream) {
  fill_blocks(exec, x, seed, stream, [=](const PhiloxBlock& words, double* values) {
    for (int i = 0; i < 4; i += 2) {
      // 1 - u is in (0, 1], where the logarithm is finite.
      const double radius = std * std::sqrt(-2 * std::log(1 - static_cast<double>(to_unit(words.word[i]))));
      const double angle = 2 * std::numbers::pi * static_cast<double>(to_unit(words.word[i + 1]));
      values[i] = mean + radius * std::cos(angle);
      values[i + 1] = mean + radius * std::sin(angle);
    }
  });
}

}  // namespace lockstep::kernels
