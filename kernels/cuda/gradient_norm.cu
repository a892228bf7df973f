#include "kernels/gradient_norm.h"

#include "kernels/cuda/reduce.cuh"

namespace lockstep::kernels {
namespace {

using std::int64_t;

constexpr unsigned kNormThreads = 1024;

// One block a partial sum. In f64, since squares of f32 overflow f32.
template <class G>
__global__ void __launch_bounds__(kNormThreads)
    squares_kernel(const G* gradients, int64_t n, bool vectors, double* partials) {
  constexpr int N = 16 / sizeof(G);
  constexpr int kUnroll = 4;  // loads in flight
  constexpr int64_t kStride = N * kNormThreads;
  static_assert(kNormBlock % (kUnroll * kStride) == 0);
  cuda::begin_kernel();
  const int64_t begin = blockIdx.x * kNormBlock + N * threadIdx.x;
  double sum = 0;
  for (int64_t offset = 0; offset < kNormBlock; offset += kUnroll * kStride) {
    cuda::Floats<N> values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int64_t left = n - (begin + offset + u * kStride);
      values[u] = cuda::load<N>(gradients + begin + offset + u * kStride,
                                static_cast<int>(left < 0   ? 0
                                                 : left < N ? left
                                                            : N),
                                vectors);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const double value = values[u][k];
        sum += value * value;
      }
    }
  }
  sum = cuda::block_reduce(sum, 0.0, cuda::Plus{});
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kNormThreads)
    combine_kernel(const double* partials, int64_t count, double max_norm, double* norm, double* clip_factor) {
  cuda::begin_kernel();
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += partials[i];
  sum = cuda::block_reduce(sum, 0.0, cuda::Plus{});
  if (threadIdx.x != 0) return;
  const double root = sqrt(sum);
  const double ratio = max_norm / (root + 1e-6);
  *norm = root;
  *clip_factor = max_norm == 0 || ratio > 1 ? 1 : ratio;
}

}  // namespace

void cuda::sum_of_squares(const ExecContext& exec, ConstView gradients, View partials) {
  if (partials.numel() == 0) return;
  with_float_type(gradients.dtype, [&]<class G>(G) {
    Launch(exec, static_cast<unsigned>(partials.numel()), kNormThreads)(
        squares_kernel<G>, gradients.as<G>(), gradients.numel(), aligned(gradients.as<G>()), partials.as<double>());
  });
}

void cuda::combine_norm(const ExecContext& exec, ConstView partials, double max_norm, View norm, View clip_factor) {
  Launch(exec, 1, kNormThreads)(combine_kernel, partials.as<double>(), partials.numel(), max_norm, norm.as<double>(),
                                clip_factor.as<double>());
}

}  // namespace lockstep::kernels
