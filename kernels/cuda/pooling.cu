// The largest element of each window.
#include "kernels/pooling.h"

#include "kernels/cuda/pooling.cuh"

namespace lockstep::kernels {
namespace {

using cuda::FixedWindows;
using cuda::Floats;
using std::int64_t;

using Geometry = cuda::PoolGeometry<FixedWindows>;

// The largest elements of a window, one for each channel, and where they were found.
template <int N>
struct Winners {
  Floats<N> value;
  int place[N];  // row * width + column

  template <class T>
  __device__ Winners(const Geometry& g, const T* x, int64_t image, int out_row, int out_column, int64_t channel,
                     int count, bool vectors) {
    const int first = max(out_row * g.stride - g.padding, 0) * g.width + max(out_column * g.stride - g.padding, 0);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      value[k] = -INFINITY;
      place[k] = first;
    }
    g.for_window(out_row, out_column, [&](int row, int column) {
      const auto values = cuda::load<N>(x + g.in(image, row, column, channel), count, vectors);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (values[k] > value[k] || values[k] != values[k]) {
          value[k] = values[k];
          place[k] = row * g.width + column;
        }
      }
    });
  }

  // Leaves out the gradients of windows whose largest element is not positive.
  __device__ void rectify(Floats<N>& grad) const {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (value[k] <= 0) grad[k] = 0;
    }
  }
};

template <int N, class T>
__global__ void max_forward_kernel(Geometry g, const T* x, bool vectors, T* y) {
  cuda::begin_kernel();
  cuda::for_vectors<N>(g.images, g.out_height, g.out_width, g.channels,
                       [&](int64_t image, int row, int column, int64_t channel, int count) {
                         const Winners<N> winners(g, x, image, row, column, channel, count, vectors);
                         cuda::store(y + g.out(image, row, column, channel), winners.value, count, vectors);
                       });
}

// Windows that do not overlap. The image falls into cells of stride^2 pixels, each with at most one window at its
// start: a thread reads the window once and writes the cell.
template <int N, class T, class G>
__global__ void max_backward_by_cell(Geometry g, const T* dy, const T* x, bool vectors, bool rectify, bool accumulate,
                                     G* dx) {
  cuda::begin_kernel();
  const int rows = (g.height + g.padding + g.stride - 1) / g.stride;
  const int columns = (g.width + g.padding + g.stride - 1) / g.stride;
  cuda::for_vectors<N>(
      g.images, rows, columns, g.channels, [&](int64_t image, int out_row, int out_column, int64_t channel, int count) {
        const bool has_window = out_row < g.out_height && out_column < g.out_width;
        const Winners<N> winners(g, x, image, out_row, out_column, channel, has_window ? count : 0, vectors);
        Floats<N> grad{};
        if (has_window) grad = cuda::load<N>(dy + g.out(image, out_row, out_column, channel), count, vectors);
        if (rectify) winners.rectify(grad);
        const int top = out_row * g.stride - g.padding;
        const int left = out_column * g.stride - g.padding;
        for (int row = max(top, 0); row < min(top + g.stride, g.height); ++row) {
          for (int column = max(left, 0); column < min(left + g.stride, g.width); ++column) {
            Floats<N> values;
#pragma unroll
            for (int k = 0; k < N; ++k) values[k] = winners.place[k] == row * g.width + column ? grad[k] : 0.0F;
            cuda::write(dx + g.in(image, row, column, channel), values, count, vectors, accumulate);
          }
        }
      });
}

// Windows that overlap: a thread looks into every window that its pixel lies in.
template <int N, class T, class G>
__global__ void max_backward_by_pixel(Geometry g, const T* dy, const T* x, bool vectors, bool rectify, bool accumulate,
                                      G* dx) {
  cuda::begin_kernel();
  cuda::for_vectors<N>(g.images, g.height, g.width, g.channels,
                       [&](int64_t image, int row, int column, int64_t channel, int count) {
                         Floats<N> sum{};
                         g.for_windows_of(row, column, [&](int out_row, int out_column) {
                           const Winners<N> winners(g, x, image, out_row, out_column, channel, count, vectors);
                           auto grad = cuda::load<N>(dy + g.out(image, out_row, out_column, channel), count, vectors);
                           if (rectify) winners.rectify(grad);
#pragma unroll
                           for (int k = 0; k < N; ++k)
                             sum[k] += winners.place[k] == row * g.width + column ? grad[k] : 0.0F;
                         });
                         cuda::write(dx + g.in(image, row, column, channel), sum, count, vectors, accumulate);
                       });
}

}  // namespace

void cuda::max_pool2d_forward(const ExecContext& exec, ConstView x, const Pool2dParams& params, View y) {
  if (y.numel() == 0) return;
  with_float_type(x.dtype, [&]<class T>(T) {
    constexpr int N = kVector<T>;
    const Geometry g(x.shape, y.shape, FixedWindows(params));
    Launch(exec, cuda::blocks_of<N>(y.numel() / g.channels, g.channels))(
        max_forward_kernel<N, T>, g, x.as<T>(), cuda::whole_vectors(g.channels, x.as<T>(), y.as<T>()), y.as<T>());
  });
}

void cuda::max_pool2d_backward(const ExecContext& exec, ConstView dy, ConstView x, const Pool2dParams& params,
                               GradView dx) {
  if (!dx || x.numel() == 0) return;
  with_float_type(x.dtype, [&]<class T>(T) {
    with_float_type(dx.view.dtype, [&]<class G>(G) {
      constexpr int N = kVector<T, G>;
      const Geometry g(x.shape, dy.shape, FixedWindows(params));
      const bool apart = g.kernel <= g.stride;
      const auto kernel = apart ? max_backward_by_cell<N, T, G> : max_backward_by_pixel<N, T, G>;
      const int64_t pixels = x.numel() / g.channels / (apart ? g.stride * g.stride : 1) + 1;
      Launch(exec, cuda::blocks_of<N>(pixels, g.channels))(
          kernel, g, dy.as<T>(), x.as<T>(), cuda::whole_vectors(g.channels, dy.as<T>(), x.as<T>(), dx.view.as<G>()),
          dx.unrectified != nullptr, dx.accumulate, dx.view.as<G>());
    });
  });
}

}  // namespace lockstep::kernels
