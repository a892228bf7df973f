#include "kernels/image.h"

#include <type_traits>

#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

template <class In, class Out>
void normalize_as(const ExecContext& exec, ConstView x, std::span<const float> mean, std::span<const float> stddev,
                  View y) {
  const In* const in = x.as<In>();
  Out* const out = y.as<Out>();
  constexpr Out kUnit = std::is_same_v<In, std::uint8_t> ? Out{1} / Out{255} : Out{1};
  const std::int64_t channels = mean.empty() ? 1 : x.shape[-1];
  cpu::parallel_for(
      exec, x.numel() / channels, cpu::kElementGrain / channels, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t c = 0; c < channels; ++c) {
          const auto k = static_cast<std::size_t>(c);
          const Out factor = mean.empty() ? kUnit : kUnit / static_cast<Out>(stddev[k]);
          const Out shift = mean.empty() ? Out{0} : static_cast<Out>(mean[k]) / static_cast<Out>(stddev[k]);
#pragma omp simd
          for (std::int64_t i = begin; i < end; ++i) {
            out[i * channels + c] = static_cast<Out>(in[i * channels + c]) * factor - shift;
          }
        }
      });
}

}  // namespace

void cpu::normalize(const ExecContext& exec, ConstView x, std::span<const float> mean, std::span<const float> stddev,
                    View y) {
  with_float_type(y.dtype, [&]<class Out>(Out) {
    if (x.dtype == DType::u8) {
      normalize_as<std::uint8_t, Out>(exec, x, mean, stddev, y);
    } else {
      normalize_as<float, Out>(exec, x, mean, stddev, y);
    }
  });
}

}  // namespace lockstep::kernels
