#include "kernels/reduction.h"

#include "kernels/cuda/map.cuh"
#include "kernels/cuda/reduce.cuh"

namespace lockstep::kernels {
namespace {

template <class T>
__global__ void sum_kernel(const T* x, std::int64_t n, bool vectors, cuda::GridSum total, cuda::WriteFloat write) {
  constexpr int N = cuda::kVector<T>;
  cuda::begin_kernel();
  cuda::Floats<N> sums{};
  for (std::int64_t i = cuda::thread_in_grid() * N; i < n; i += cuda::threads_in_grid() * N) {
    const auto values = cuda::load<N>(x + i, static_cast<int>(n - i < N ? n - i : N), vectors);
#pragma unroll
    for (int k = 0; k < N; ++k) sums[k] += values[k];
  }
  double sum = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) sum += sums[k];
  sum = cuda::block_reduce(sum, 0.0, cuda::Plus{});
  if (threadIdx.x == 0) total.put(sum, write);
}

// The same number everywhere, read from device memory.
template <class G>
__global__ void broadcast(cuda::Scalar dy, float factor, std::int64_t n, bool vectors, bool accumulate, G* dx) {
  constexpr int N = cuda::kVector<G>;
  cuda::begin_kernel();
  const float value = factor * dy.read();
  cuda::Floats<N> values;
#pragma unroll
  for (int k = 0; k < N; ++k) values[k] = value;
  for (std::int64_t i = cuda::thread_in_grid() * N; i < n; i += cuda::threads_in_grid() * N) {
    cuda::write(dx + i, values, static_cast<int>(n - i < N ? n - i : N), vectors, accumulate);
  }
}

}  // namespace

void cuda::sum(const ExecContext& exec, ConstView x, double factor, View y) {
  with_float_type(x.dtype, [&]<class T>(T) {
    const unsigned blocks = std::min(blocks_for(x.numel(), 16 * kThreads * kVector<T>), 512U);
    const GridSum total = grid_sum(exec, blocks, factor);
    const WriteFloat write{Scalar(y)};
    Launch(exec, blocks)(sum_kernel<T>, x.as<T>(), x.numel(), aligned(x.as<T>()), total, write);
    finish(exec, total, blocks, write);
  });
}

void cuda::sum_backward(const ExecContext& exec, ConstView dy, double factor, GradView dx) {
  if (!dx || dx.view.numel() == 0) return;
  with_float_type(dx.view.dtype, [&]<class G>(G) {
    const std::int64_t n = dx.view.numel();
    Launch(exec, blocks_for(n, kVector<G> * std::int64_t{kThreads}))(
        broadcast<G>, Scalar(dy), static_cast<float>(factor), n, aligned(dx.view.as<G>()), dx.accumulate,
        dx.view.as<G>());
  });
}

}  // namespace lockstep::kernels
