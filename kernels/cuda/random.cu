#include "kernels/random.h"

#include <numbers>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace lockstep::kernels {
namespace {

using std::int64_t;

struct Uniform {
  double low;
  double high;
  __device__ void operator()(const PhiloxBlock& words, double* values) const {
    for (int i = 0; i < 4; ++i) values[i] = low + (high - low) * static_cast<double>(to_unit(words.word[i]));
  }
};

struct Normal {
  double mean;
  double std;
  __device__ void operator()(const PhiloxBlock& words, double* values) const {
    for (int i = 0; i < 4; i += 2) {
      // 1 - u is in (0, 1], where the logarithm is finite.
      const double radius = std * sqrt(-2 * log(1 - static_cast<double>(to_unit(words.word[i]))));
      const double angle = 2 * std::numbers::pi * static_cast<double>(to_unit(words.word[i + 1]));
      values[i] = mean + radius * cos(angle);
      values[i + 1] = mean + radius * sin(angle);
    }
  }
};

// In f64 like on a CPU, so that a model starts from the same values on both.
template <class T, class Draw>
__global__ void fill_kernel(T* x, int64_t n, bool vectors, std::uint64_t seed, std::uint32_t stream, Draw draw) {
  cuda::begin_kernel();
  // The last step that there is: no training step draws the same numbers from this seed.
  const RandomState state{.seed = seed, .step = ~std::uint64_t{0}, .sample_offset = 0};
  for (int64_t block = cuda::thread_in_grid(); 4 * block < n; block += cuda::threads_in_grid()) {
    double drawn[4];
    draw(random_block(state, stream, 0, block), drawn);
    cuda::Floats<4> values;
    for (int k = 0; k < 4; ++k) values[k] = static_cast<float>(drawn[k]);
    cuda::store(x + 4 * block, values, static_cast<int>(n - 4 * block < 4 ? n - 4 * block : 4), vectors);
  }
}

template <class Draw>
void fill_blocks(const ExecContext& exec, View x, std::uint64_t seed, std::uint32_t stream, Draw draw) {
  const int64_t n = x.numel();
  if (n == 0) return;
  cuda::with_float_type(x.dtype, [&]<class T>(T) {
    cuda::Launch(exec, cuda::blocks_for(n, 4 * cuda::kThreads))(fill_kernel<T, Draw>, x.as<T>(), n,
                                                                cuda::aligned(x.as<T>()), seed, stream, draw);
  });
}

}  // namespace

void cuda::fill_uniform(const ExecContext& exec, View x, double low, double high, std::uint64_t seed,
                        std::uint32_t stream) {
  fill_blocks(exec, x, seed, stream, Uniform{low, high});
}

void cuda::fill_normal(const ExecContext& exec, View x, double mean, double std, std::uint64_t seed,
                       std::uint32_t stream) {
  fill_blocks(exec, x, seed, stream, Normal{mean, std});
}

}  // namespace lockstep::kernels
