#include "kernels/dropout.h"

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace lockstep::kernels {
namespace {

using std::int64_t;

// A thread handles vectors of N elements of one sample: N / 4 blocks of draws.
template <int N, class T, class G>
__global__ void dropout_kernel(const T* x, int64_t samples, int64_t sample_size, bool vectors, float p, float factor,
                               const RandomState* state, std::uint32_t op, bool accumulate, G* y) {
  cuda::begin_kernel();
  const RandomState random = *state;
  const int64_t units = (sample_size + N - 1) / N;  // of a sample
  for (int64_t unit = cuda::thread_in_grid(); unit < samples * units; unit += cuda::threads_in_grid()) {
    const int64_t sample = cuda::quotient(unit, units);
    const int64_t first = (unit - sample * units) * N;  // within the sample
    const int64_t i = sample * sample_size + first;
    const int count = static_cast<int>(sample_size - first < N ? sample_size - first : N);
    auto values = cuda::load<N>(x + i, count, vectors);
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      const PhiloxBlock draws = random_block(random, op, sample, (first + k) / 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) values[k + j] *= to_unit(draws.word[j]) < p ? 0.0F : factor;
    }
    cuda::write(y + i, values, count, vectors, accumulate);
  }
}

}  // namespace

void cuda::dropout(const ExecContext& exec, ConstView x, double p, const RandomState* state, std::uint32_t op,
                   GradView y) {
  if (!y || x.numel() == 0) return;
  const int64_t samples = x.shape.rank() == 0 ? 1 : x.shape[0];
  const int64_t sample_size = x.numel() / samples;
  with_float_type(x.dtype, [&]<class T>(T) {
    with_float_type(y.view.dtype, [&]<class G>(G) {
      constexpr int N = kVector<T, G>;
      const T* const in = x.as<T>();
      G* const out = y.view.as<G>();
      const int64_t units = samples * ((sample_size + N - 1) / N);
      Launch(exec, blocks_for(units, kThreads))(dropout_kernel<N, T, G>, in, samples, sample_size,
                                                sample_size % N == 0 && aligned(in, out), static_cast<float>(p),
                                                static_cast<float>(1 / (1 - p)), state, op, y.accumulate, out);
    });
  });
}

}  // namespace lockstep::kernels
