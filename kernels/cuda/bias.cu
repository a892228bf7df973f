#include "kernels/cuda/bias.h"

#include "kernels/cuda/column_sums.cuh"

namespace lockstep::kernels {
namespace {

using std::int64_t;

template <class T>
__global__ void add_bias_kernel(const T* bias, int64_t n, int64_t columns, bool relu, bool vectors, T* y) {
  constexpr int N = cuda::kVector<T>;
  cuda::begin_kernel();
  const int step = vectors ? N : 1;
  for (int64_t i = step * cuda::thread_in_grid(); i < n; i += step * cuda::threads_in_grid()) {
    const int64_t column = i - cuda::quotient(i, columns) * columns;
    auto values = cuda::load<N>(y + i, step, vectors);
    const auto added = cuda::load<N>(bias + column, step, vectors);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[k] += added[k];
      if (relu && values[k] < 0) values[k] = 0;
    }
    cuda::store(y + i, values, step, vectors);
  }
}

}  // namespace

void cuda::add_bias(const ExecContext& exec, ConstView bias, Activation activation, View y) {
  const int64_t n = y.numel();
  const int64_t columns = bias.numel();
  if (n == 0) return;
  with_float_type(y.dtype, [&]<class T>(T) {
    const bool vectors = columns % kVector<T> == 0 && aligned(bias.as<T>(), y.as<T>());
    const int64_t per_thread = vectors ? kVector<T> : 1;
    Launch(exec, blocks_for(n, per_thread * kThreads))(add_bias_kernel<T>, bias.as<T>(), n, columns,
                                                       activation == Activation::relu, vectors, y.as<T>());
  });
}

void cuda::bias_gradient(const ExecContext& exec, ConstView dy, GradView dbias) {
  const int64_t columns = dbias.view.numel();
  if (columns == 0) return;
  with_float_type(dy.dtype, [&]<class T>(T) {
    constexpr int N = kVector<T>;
    column_sums<N>(exec, dy.numel() / columns, columns, MatrixRows<N, T>(dy.as<T>(), columns), dbias);
  });
}

}  // namespace lockstep::kernels
