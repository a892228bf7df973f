#include "kernels/image.h"

#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace lockstep::kernels {
namespace {

using std::int64_t;

constexpr int kMaxChannels = 128;

// y = x * factor - shift, for each channel. Travels as an argument of the kernel.
struct Channels {
  int count = 1;
  float factor[kMaxChannels];
  float shift[kMaxChannels];
};

template <class In, class Out>
__global__ void normalize_kernel(const In* x, int64_t n, bool vectors, const __grid_constant__ Channels channels,
                                 Out* y) {
  constexpr int N = 8;
  cuda::begin_kernel();
  for (int64_t i = N * cuda::thread_in_grid(); i < n; i += N * cuda::threads_in_grid()) {
    const int count = static_cast<int>(n - i < N ? n - i : N);
    auto values = cuda::load<N>(x + i, count, vectors);
    int channel = static_cast<int>(i - cuda::quotient(i, channels.count) * channels.count);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[k] = values[k] * channels.factor[channel] - channels.shift[channel];
      if (++channel == channels.count) channel = 0;
    }
    cuda::store(y + i, values, count, vectors);
  }
}

Channels channels_of(DType dtype, std::span<const float> mean, std::span<const float> stddev) {
  if (mean.size() > kMaxChannels) {
    throw std::invalid_argument("normalize: expected at most " + std::to_string(kMaxChannels) +
                                " channels on a GPU, got " + std::to_string(mean.size()));
  }
  const float unit = dtype == DType::u8 ? 1.0F / 255.0F : 1.0F;
  Channels channels{};
  channels.factor[0] = unit;
  if (!mean.empty()) channels.count = static_cast<int>(mean.size());
  for (std::size_t c = 0; c < mean.size(); ++c) {
    channels.factor[c] = unit / stddev[c];
    channels.shift[c] = mean[c] / stddev[c];
  }
  return channels;
}

template <class In, class Out>
void normalize_as(const ExecContext& exec, ConstView x, const Channels& channels, View y) {
  const In* const in = x.as<In>();
  Out* const out = y.as<Out>();
  cuda::Launch(exec, cuda::blocks_for(x.numel(), 8 * cuda::kThreads))(normalize_kernel<In, Out>, in, x.numel(),
                                                                      cuda::aligned(in, out), channels, out);
}

}  // namespace

void cuda::normalize(const ExecContext& exec, ConstView x, std::span<const float> mean, std::span<const float> stddev,
                     View y) {
  if (x.numel() == 0) return;
  const Channels channels = channels_of(x.dtype, mean, stddev);
  with_float_type(y.dtype, [&]<class Out>(Out) {
    if (x.dtype == DType::u8) {
      normalize_as<std::uint8_t, Out>(exec, x, channels, y);
    } else {
      normalize_as<float, Out>(exec, x, channels, y);
    }
  });
}

}  // namespace lockstep::kernels
