// A warp for each row. A row is read several times: from the second on it is in the caches.
#include "kernels/layer_norm.h"

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/reduce.cuh"

namespace lockstep::kernels {
namespace {

using cuda::Floats;
using cuda::kWarp;
using std::int64_t;

constexpr int64_t kRowsOfBlock = cuda::kThreads / kWarp;

// Calls body(column, count) for the vectors of a row that fall to the calling lane.
template <int N, class Body>
__device__ void for_columns(int64_t columns, Body body) {
  for (int64_t column = N * static_cast<int64_t>(threadIdx.x % kWarp); column < columns; column += N * kWarp) {
    body(column, static_cast<int>(columns - column < N ? columns - column : N));
  }
}

template <class T>
__global__ void forward_kernel(const T* x, const T* gamma, const T* beta, float eps, int64_t rows, int64_t columns,
                               bool vectors, T* y, float* mean, float* rstd) {
  constexpr int N = cuda::kVector<T>;
  cuda::begin_kernel();
  const float scale = 1.0F / static_cast<float>(columns);
  for (int64_t row = cuda::thread_in_grid() / kWarp; row < rows; row += cuda::threads_in_grid() / kWarp) {
    const T* const in = x + row * columns;
    float sum = 0;
    for_columns<N>(columns, [&](int64_t column, int count) {
      const auto values = cuda::load<N>(in + column, count, vectors);
#pragma unroll
      for (int k = 0; k < N; ++k) sum += values[k];
    });
    const float m = cuda::warp_reduce(sum, cuda::Plus{}) * scale;
    float squares = 0;
    for_columns<N>(columns, [&](int64_t column, int count) {
      const auto values = cuda::load<N>(in + column, count, vectors);
#pragma unroll
      for (int k = 0; k < N; ++k) squares += k < count ? (values[k] - m) * (values[k] - m) : 0.0F;
    });
    const float r = 1.0F / sqrtf(cuda::warp_reduce(squares, cuda::Plus{}) * scale + eps);
    for_columns<N>(columns, [&](int64_t column, int count) {
      auto values = cuda::load<N>(in + column, count, vectors);
      const auto g = cuda::load<N>(gamma + column, count, vectors);
      const auto b = cuda::load<N>(beta + column, count, vectors);
#pragma unroll
      for (int k = 0; k < N; ++k) values[k] = (values[k] - m) * r * g[k] + b[k];
      cuda::store(y + row * columns + column, values, count, vectors);
    });
    if (threadIdx.x % kWarp == 0) {
      mean[row] = m;
      rstd[row] = r;
    }
  }
}

template <int N, class T, class G>
__global__ void backward_rows(const T* dy, const T* x, const T* gamma, const float* mean, const float* rstd,
                              int64_t rows, int64_t columns, bool vectors, bool accumulate, G* dx) {
  cuda::begin_kernel();
  const float scale = 1.0F / static_cast<float>(columns);
  for (int64_t row = cuda::thread_in_grid() / kWarp; row < rows; row += cuda::threads_in_grid() / kWarp) {
    const float m = mean[row];
    const float r = rstd[row];
    // Calls body(column, count, g, xhat) with g = dy * gamma, 0 beyond the row.
    const auto for_vectors = [&](auto body) {
      for_columns<N>(columns, [&](int64_t column, int count) {
        auto g = cuda::load<N>(dy + row * columns + column, count, vectors);
        auto xhat = cuda::load<N>(x + row * columns + column, count, vectors);
        const auto factor = cuda::load<N>(gamma + column, count, vectors);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          g[k] *= factor[k];
          xhat[k] = (xhat[k] - m) * r;
        }
        body(column, count, g, xhat);
      });
    };
    float sum_g = 0;
    float sum_gx = 0;
    for_vectors([&](int64_t, int, const Floats<N>& g, const Floats<N>& xhat) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sum_g += g[k];
        sum_gx += g[k] * xhat[k];
      }
    });
    const float mean_g = cuda::warp_reduce(sum_g, cuda::Plus{}) * scale;
    const float mean_gx = cuda::warp_reduce(sum_gx, cuda::Plus{}) * scale;
    for_vectors([&](int64_t column, int count, const Floats<N>& g, const Floats<N>& xhat) {
      Floats<N> values;
#pragma unroll
      for (int k = 0; k < N; ++k) values[k] = r * (g[k] - mean_g - xhat[k] * mean_gx);
      cuda::write(dx + row * columns + column, values, count, vectors, accumulate);
    });
  }
}

// Sums of dy * xhat, then of dy, over one part of the rows: partials (2, parts, C).
template <class T>
__global__ void backward_columns(cuda::ColumnTiling tiling, const T* dy, const T* x, const float* mean,
                                 const float* rstd, int64_t rows, int64_t columns, bool vectors, float* partials) {
  constexpr int N = cuda::kVector<T>;
  cuda::begin_kernel();
  Floats<N> sums[2] = {};
  cuda::sum_tile<2, N>(
      tiling, rows, columns,
      [=](int64_t row, int64_t column, int count, Floats<N>(&sum)[2]) {
        const auto grad = cuda::load<N>(dy + row * columns + column, count, vectors);
        const auto values = cuda::load<N>(x + row * columns + column, count, vectors);
        const float m = mean[row];
        const float r = rstd[row];
#pragma unroll
        for (int k = 0; k < N; ++k) {
          sum[0][k] += grad[k] * (values[k] - m) * r;
          sum[1][k] += grad[k];
        }
      },
      sums);
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * tiling.tile + threadIdx.x) * N;
  if (threadIdx.x >= tiling.tile || column >= columns) return;
  const int count = static_cast<int>(columns - column < N ? columns - column : N);
  for (int s = 0; s < 2; ++s) {
    cuda::store(partials + (s * gridDim.y + blockIdx.y) * columns + column, sums[s], count, vectors);
  }
}

}  // namespace

void cuda::layer_norm_forward(const ExecContext& exec, ConstView x, ConstView gamma, ConstView beta, double eps, View y,
                              View mean, View rstd) {
  if (x.numel() == 0) return;
  with_float_type(x.dtype, [&]<class T>(T) {
    const int64_t columns = x.shape[1];
    const bool vectors = columns % kVector<T> == 0 && aligned(x.as<T>(), gamma.as<T>(), beta.as<T>(), y.as<T>());
    Launch(exec, blocks_for(x.shape[0], kRowsOfBlock))(forward_kernel<T>, x.as<T>(), gamma.as<T>(), beta.as<T>(),
                                                       static_cast<float>(eps), x.shape[0], columns, vectors, y.as<T>(),
                                                       mean.as<float>(), rstd.as<float>());
  });
}

void cuda::layer_norm_backward(const ExecContext& exec, ConstView dy, ConstView x, ConstView gamma, ConstView mean,
                               ConstView rstd, GradView dx, GradView dgamma, GradView dbeta) {
  const int64_t rows = x.shape[0];
  const int64_t columns = x.shape[1];
  if (columns == 0) return;
  with_float_type(x.dtype, [&]<class T>(T) {
    if (dx && rows > 0) {
      with_float_type(dx.view.dtype, [&]<class G>(G) {
        constexpr int N = kVector<T, G>;
        const bool vectors = columns % N == 0 && aligned(dy.as<T>(), x.as<T>(), gamma.as<T>(), dx.view.as<G>());
        Launch(exec, blocks_for(rows, kRowsOfBlock))(backward_rows<N, T, G>, dy.as<T>(), x.as<T>(), gamma.as<T>(),
                                                     mean.as<float>(), rstd.as<float>(), rows, columns, vectors,
                                                     dx.accumulate, dx.view.as<G>());
      });
    }
    if (!dgamma && !dbeta) return;
    const ColumnTiling tiling(rows, columns, kVector<T>);
    auto* const partials = static_cast<float*>(
        exec.workspace->reserve(static_cast<std::size_t>(2 * tiling.parts * columns) * sizeof(float)));
    const bool vectors = columns % kVector<T> == 0 && aligned(dy.as<T>(), x.as<T>());
    Launch(exec, dim3(tiling.column_tiles, tiling.parts))(backward_columns<T>, tiling, dy.as<T>(), x.as<T>(),
                                                          mean.as<float>(), rstd.as<float>(), rows, columns, vectors,
                                                          partials);
    add_rows(exec, partials, tiling.parts, dgamma);
    add_rows(exec, partials + tiling.parts * columns, tiling.parts, dbeta);
  });
}

}  // namespace lockstep::kernels
