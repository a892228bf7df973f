// The mean of each window.
#include "kernels/cuda/pooling.cuh"
#include "kernels/pooling.h"

namespace lockstep::kernels {
namespace {

using cuda::AdaptiveWindows;
using cuda::FixedWindows;
using cuda::Floats;
using cuda::PoolGeometry;
using std::int64_t;

template <int N, class Windows, class T>
__global__ void forward_kernel(PoolGeometry<Windows> g, const T* x, bool vectors, T* y) {
  cuda::begin_kernel();
  cuda::for_vectors<N>(g.images, g.out_height, g.out_width, g.channels,
                       [&](int64_t image, int out_row, int out_column, int64_t channel, int count) {
                         const float weight = g.weight(g.rows(out_row), g.columns(out_column));
                         Floats<N> sum{};
                         g.for_window(out_row, out_column, [&](int row, int column) {
                           const auto values = cuda::load<N>(x + g.in(image, row, column, channel), count, vectors);
#pragma unroll
                           for (int k = 0; k < N; ++k) sum[k] += weight * values[k];
                         });
                         cuda::store(y + g.out(image, out_row, out_column, channel), sum, count, vectors);
                       });
}

template <int N, class Windows, class T, class G>
__global__ void backward_kernel(PoolGeometry<Windows> g, const T* dy, bool vectors, bool accumulate, G* dx) {
  cuda::begin_kernel();
  cuda::for_vectors<N>(
      g.images, g.height, g.width, g.channels, [&](int64_t image, int row, int column, int64_t channel, int count) {
        Floats<N> sum{};
        g.for_windows_of(row, column, [&](int out_row, int out_column) {
          const float weight = g.weight(g.rows(out_row), g.columns(out_column));
          const auto grad = cuda::load<N>(dy + g.out(image, out_row, out_column, channel), count, vectors);
#pragma unroll
          for (int k = 0; k < N; ++k) sum[k] += weight * grad[k];
        });
        cuda::write(dx + g.in(image, row, column, channel), sum, count, vectors, accumulate);
      });
}

template <class Windows>
void forward(const ExecContext& exec, ConstView x, const Windows& windows, View y) {
  if (y.numel() == 0) return;
  cuda::with_float_type(x.dtype, [&]<class T>(T) {
    constexpr int N = cuda::kVector<T>;
    const PoolGeometry<Windows> g(x.shape, y.shape, windows);
    cuda::Launch(exec, cuda::blocks_of<N>(y.numel() / g.channels, g.channels))(
        forward_kernel<N, Windows, T>, g, x.as<T>(), cuda::whole_vectors(g.channels, x.as<T>(), y.as<T>()), y.as<T>());
  });
}

template <class Windows>
void backward(const ExecContext& exec, ConstView dy, const Windows& windows, const GradView& dx) {
  if (!dx || dx.view.numel() == 0) return;
  cuda::with_float_type(dy.dtype, [&]<class T>(T) {
    cuda::with_float_type(dx.view.dtype, [&]<class G>(G) {
      constexpr int N = cuda::kVector<T, G>;
      const PoolGeometry<Windows> g(dx.view.shape, dy.shape, windows);
      cuda::Launch(exec, cuda::blocks_of<N>(dx.view.numel() / g.channels, g.channels))(
          backward_kernel<N, Windows, T, G>, g, dy.as<T>(),
          cuda::whole_vectors(g.channels, dy.as<T>(), dx.view.as<G>()), dx.accumulate, dx.view.as<G>());
    });
  });
}

}  // namespace

void cuda::avg_pool2d_forward(const ExecContext& exec, ConstView x, const Pool2dParams& params, View y) {
  forward(exec, x, FixedWindows(params), y);
}

void cuda::avg_pool2d_backward(const ExecContext& exec, ConstView dy, const Pool2dParams& params, GradView dx) {
  backward(exec, dy, FixedWindows(params), dx);
}

void cuda::adaptive_avg_pool2d_forward(const ExecContext& exec, ConstView x, View y) {
  forward(exec, x, AdaptiveWindows{}, y);
}

void cuda::adaptive_avg_pool2d_backward(const ExecContext& exec, ConstView dy, GradView dx) {
  backward(exec, dy, AdaptiveWindows{}, dx);
}

}  // namespace lockstep::kernels
