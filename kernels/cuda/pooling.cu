// The largest element of each window.
#include "kernels/pooling.h"

#include "kernels/cuda/bias.h"
#include "kernels/cuda/pooling.cuh"

namespace lockstep::kernels {
namespace {

using cuda::FixedWindows;
using cuda::Floats;
using std::int64_t;

using Geometry = cuda::PoolGeometry<FixedWindows>;

template <int N>
struct alignas(N) Bytes {
  std::uint8_t value[N];
};

template <int N>
__device__ Bytes<N> load_bytes(const std::uint8_t* address, int count, bool vectors) {
  if (vectors) return *reinterpret_cast<const Bytes<N>*>(address);
  Bytes<N> bytes;
#pragma unroll
  for (int k = 0; k < N; ++k) bytes.value[k] = k < count ? address[k] : kNoWinner;
  return bytes;
}

template <int N>
__device__ void store_bytes(std::uint8_t* address, const Bytes<N>& bytes, int count, bool vectors) {
  if (vectors) {
    *reinterpret_cast<Bytes<N>*>(address) = bytes;
    return;
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (k < count) address[k] = bytes.value[k];
  }
}

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

// The window of output pixel (row, column) begins at (row * window, column * window).
template <int N, class T>
__global__ void relu_max_forward_kernel(Geometry g, const T* x, const T* bias, bool vectors, T* y,
                                        std::uint8_t* winners) {
  cuda::begin_kernel();
  cuda::for_vectors<N>(g.images, g.out_height, g.out_width, g.channels,
                       [&](int64_t image, int row, int column, int64_t channel, int count) {
                         const Winners<N> found(g, x, image, row, column, channel, count, vectors);
                         Floats<N> values = found.value;
                         if (bias != nullptr) {
                           const auto added = cuda::load<N>(bias + channel, count, vectors);
#pragma unroll
                           for (int k = 0; k < N; ++k) values[k] += added[k];
                         }
                         Bytes<N> places;
                         const int first = row * g.kernel * g.width + column * g.kernel;
#pragma unroll
                         for (int k = 0; k < N; ++k) {
                           const int distance = found.place[k] - first;
                           const int place = distance / g.width * g.kernel + distance % g.width;
                           places.value[k] = static_cast<std::uint8_t>(values[k] <= 0 ? kNoWinner : place);
                           if (values[k] < 0) values[k] = 0;
                         }
                         const int64_t at = g.out(image, row, column, channel);
                         cuda::store(y + at, values, count, vectors);
                         if (winners != nullptr) store_bytes(winners + at, places, count, vectors);
                       });
}

template <int N, class T>
__global__ void relu_max_backward_kernel(Geometry g, const T* dy, const std::uint8_t* winners, bool vectors, T* dx) {
  cuda::begin_kernel();
  const int rows = (g.height + g.kernel - 1) / g.kernel;
  const int columns = (g.width + g.kernel - 1) / g.kernel;
  cuda::for_vectors<N>(g.images, rows, columns, g.channels,
                       [&](int64_t image, int out_row, int out_column, int64_t channel, int count) {
                         Floats<N> grad{};
                         Bytes<N> places{};
                         if (out_row < g.out_height && out_column < g.out_width) {
                           const int64_t at = g.out(image, out_row, out_column, channel);
                           grad = cuda::load<N>(dy + at, count, vectors);
                           places = load_bytes<N>(winners + at, count, vectors);
                         }
                         for (int i = 0; i < g.kernel && out_row * g.kernel + i < g.height; ++i) {
                           for (int j = 0; j < g.kernel && out_column * g.kernel + j < g.width; ++j) {
                             Floats<N> values;
#pragma unroll
                             for (int k = 0; k < N; ++k)
                               values[k] = places.value[k] == i * g.kernel + j ? grad[k] : 0.0F;
                             cuda::store(dx + g.in(image, out_row * g.kernel + i, out_column * g.kernel + j, channel),
                                         values, count, vectors);
                           }
                         }
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

void cuda::relu_max_pool2d_forward(const ExecContext& exec, ConstView x, ConstView bias, int64_t window, View y,
                                   View winners) {
  if (y.numel() == 0) return;
  with_float_type(x.dtype, [&]<class T>(T) {
    constexpr int N = kVector<T>;
    const Geometry g(x.shape, y.shape, FixedWindows({.kernel = window, .stride = window}));
    const T* const added = bias.data == nullptr ? nullptr : bias.as<T>();
    std::uint8_t* const places = winners.data == nullptr ? nullptr : winners.as<std::uint8_t>();
    Launch(exec, cuda::blocks_of<N>(y.numel() / g.channels, g.channels))(
        relu_max_forward_kernel<N, T>, g, x.as<T>(), added,
        cuda::whole_vectors(g.channels, x.as<T>(), y.as<T>(), added) && aligned(places), y.as<T>(), places);
  });
}

void cuda::relu_max_pool2d_backward(const ExecContext& exec, ConstView dy, ConstView winners, int64_t window, View dx,
                                    GradView dbias) {
  if (dx.numel() > 0) {
    with_float_type(dy.dtype, [&]<class T>(T) {
      constexpr int N = kVector<T>;
      const Geometry g(dx.shape, dy.shape, FixedWindows({.kernel = window, .stride = window}));
      const auto* const places = winners.as<std::uint8_t>();
      const int64_t pixels = dx.numel() / g.channels / (window * window) + dx.shape[0] * (dx.shape[1] + dx.shape[2]);
      Launch(exec, cuda::blocks_of<N>(pixels, g.channels))(
          relu_max_backward_kernel<N, T>, g, dy.as<T>(), places,
          cuda::whole_vectors(g.channels, dy.as<T>(), dx.as<T>()) && aligned(places), dx.as<T>());
    });
  }
  if (dbias) bias_gradient(exec, dx, dbias);
}

}  // namespace lockstep::kernels
