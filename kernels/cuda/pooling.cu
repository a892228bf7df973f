// A thread handles some neighbouring channels of one pixel, of the output or of the input. Gradients are gathered, not
// scattered: no two threads write the same element.
#include "kernels/pooling.h"

#include "kernels/cuda/bias.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace lockstep::kernels {
namespace {

using cuda::Floats;
using std::int64_t;

struct Geometry {
  int height, width, out_height, out_width, kernel, stride, padding;
  int64_t images, channels;

  Geometry(const Shape& x, const Shape& y, const Pool2dParams& params)
      : height(static_cast<int>(x[1])),
        width(static_cast<int>(x[2])),
        out_height(static_cast<int>(y[1])),
        out_width(static_cast<int>(y[2])),
        kernel(static_cast<int>(params.kernel)),
        stride(static_cast<int>(params.stride)),
        padding(static_cast<int>(params.padding)),
        images(x[0]),
        channels(x[3]) {}

  __device__ int64_t in(int64_t image, int row, int column, int64_t channel) const {
    return ((image * height + row) * width + column) * channels + channel;
  }
  __device__ int64_t out(int64_t image, int row, int column, int64_t channel) const {
    return ((image * out_height + row) * out_width + column) * channels + channel;
  }

  // Calls body(row, column) for the pixels of an output pixel's window that lie in the image, in row order.
  template <class Body>
  __device__ void for_window(int out_row, int out_column, Body body) const {
    const int top = out_row * stride - padding;
    const int left = out_column * stride - padding;
    for (int row = max(top, 0); row < min(top + kernel, height); ++row) {
      for (int column = max(left, 0); column < min(left + kernel, width); ++column) body(row, column);
    }
  }

  // Calls body(output row, output column) for the windows that a pixel lies in, in row order.
  template <class Body>
  __device__ void for_windows_of(int row, int column, Body body) const {
    for (int out_row = first_window(row); out_row <= last_window(row, out_height); ++out_row) {
      for (int out_column = first_window(column); out_column <= last_window(column, out_width); ++out_column) {
        body(out_row, out_column);
      }
    }
  }

 private:
  __device__ int first_window(int place) const {
    const int past = place + padding - kernel;  // windows up to here end before the pixel
    return past < 0 ? 0 : past / stride + 1;
  }
  __device__ int last_window(int place, int windows) const { return min((place + padding) / stride, windows - 1); }
};

// Calls body(image, row, column, channel, count) for the calling thread's vectors of a (images, rows, columns,
// channels).
template <int N, class Body>
__device__ void for_vectors(int64_t images, int rows, int columns, int64_t channels, Body body) {
  const int64_t vectors = (channels + N - 1) / N;  // of a pixel
  const int64_t total = images * rows * columns * vectors;
  for (int64_t unit = cuda::thread_in_grid(); unit < total; unit += cuda::threads_in_grid()) {
    const int64_t pixel = cuda::quotient(unit, vectors);
    const int64_t line = cuda::quotient(pixel, columns);
    const int64_t image = cuda::quotient(line, rows);
    const int64_t channel = (unit - pixel * vectors) * N;
    body(image, static_cast<int>(line - image * rows), static_cast<int>(pixel - line * columns), channel,
         static_cast<int>(channels - channel < N ? channels - channel : N));
  }
}

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
  for_vectors<N>(g.images, g.out_height, g.out_width, g.channels,
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
  for_vectors<N>(g.images, rows, columns, g.channels,
                 [&](int64_t image, int out_row, int out_column, int64_t channel, int count) {
                   const bool has_window = out_row < g.out_height && out_column < g.out_width;
                   const Winners<N> winners(g, x, image, out_row, out_column, channel, has_window ? count : 0, vectors);
                   Floats<N> grad{};
                   if (has_window)
                     grad = cuda::load<N>(dy + g.out(image, out_row, out_column, channel), count, vectors);
                   if (rectify) winners.rectify(grad);
                   const int top = out_row * g.stride - g.padding;
                   const int left = out_column * g.stride - g.padding;
                   for (int row = max(top, 0); row < min(top + g.stride, g.height); ++row) {
                     for (int column = max(left, 0); column < min(left + g.stride, g.width); ++column) {
                       Floats<N> values;
#pragma unroll
                       for (int k = 0; k < N; ++k)
                         values[k] = winners.place[k] == row * g.width + column ? grad[k] : 0.0F;
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
  for_vectors<N>(g.images, g.height, g.width, g.channels,
                 [&](int64_t image, int row, int column, int64_t channel, int count) {
                   Floats<N> sum{};
                   g.for_windows_of(row, column, [&](int out_row, int out_column) {
                     const Winners<N> winners(g, x, image, out_row, out_column, channel, count, vectors);
                     auto grad = cuda::load<N>(dy + g.out(image, out_row, out_column, channel), count, vectors);
                     if (rectify) winners.rectify(grad);
#pragma unroll
                     for (int k = 0; k < N; ++k) sum[k] += winners.place[k] == row * g.width + column ? grad[k] : 0.0F;
                   });
                   cuda::write(dx + g.in(image, row, column, channel), sum, count, vectors, accumulate);
                 });
}

// The window of output pixel (row, column) begins at (row * window, column * window).
template <int N, class T>
__global__ void relu_max_forward_kernel(Geometry g, const T* x, const T* bias, bool vectors, T* y,
                                        std::uint8_t* winners) {
  cuda::begin_kernel();
  for_vectors<N>(g.images, g.out_height, g.out_width, g.channels,
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
  for_vectors<N>(g.images, rows, columns, g.channels,
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
                       for (int k = 0; k < N; ++k) values[k] = places.value[k] == i * g.kernel + j ? grad[k] : 0.0F;
                       cuda::store(dx + g.in(image, out_row * g.kernel + i, out_column * g.kernel + j, channel), values,
                                   count, vectors);
                     }
                   }
                 });
}

template <int N, class T>
__global__ void avg_forward_kernel(Geometry g, const T* x, bool vectors, T* y) {
  cuda::begin_kernel();
  const float factor = 1.0F / static_cast<float>(g.kernel * g.kernel);
  for_vectors<N>(g.images, g.out_height, g.out_width, g.channels,
                 [&](int64_t image, int out_row, int out_column, int64_t channel, int count) {
                   Floats<N> sum{};
                   g.for_window(out_row, out_column, [&](int row, int column) {
                     const auto values = cuda::load<N>(x + g.in(image, row, column, channel), count, vectors);
#pragma unroll
                     for (int k = 0; k < N; ++k) sum[k] += factor * values[k];
                   });
                   cuda::store(y + g.out(image, out_row, out_column, channel), sum, count, vectors);
                 });
}

template <int N, class T, class G>
__global__ void avg_backward_kernel(Geometry g, const T* dy, bool vectors, bool accumulate, G* dx) {
  cuda::begin_kernel();
  const float factor = 1.0F / static_cast<float>(g.kernel * g.kernel);
  for_vectors<N>(g.images, g.height, g.width, g.channels,
                 [&](int64_t image, int row, int column, int64_t channel, int count) {
                   Floats<N> sum{};
                   g.for_windows_of(row, column, [&](int out_row, int out_column) {
                     const auto grad = cuda::load<N>(dy + g.out(image, out_row, out_column, channel), count, vectors);
#pragma unroll
                     for (int k = 0; k < N; ++k) sum[k] += factor * grad[k];
                   });
                   cuda::write(dx + g.in(image, row, column, channel), sum, count, vectors, accumulate);
                 });
}

// Blocks for `pixels` of `channels`, each thread with N of them.
template <int N>
unsigned blocks_of(int64_t pixels, int64_t channels) {
  return cuda::blocks_for(pixels * ((channels + N - 1) / N), cuda::kThreads);
}

template <class... T>
bool whole_vectors(int64_t channels, const T*... address) {
  return channels % cuda::kVector<T...> == 0 && cuda::aligned(address...);
}

}  // namespace

void cuda::max_pool2d_forward(const ExecContext& exec, ConstView x, const Pool2dParams& params, View y) {
  if (y.numel() == 0) return;
  with_float_type(x.dtype, [&]<class T>(T) {
    constexpr int N = kVector<T>;
    const Geometry g(x.shape, y.shape, params);
    Launch(exec, blocks_of<N>(y.numel() / g.channels, g.channels))(
        max_forward_kernel<N, T>, g, x.as<T>(), whole_vectors(g.channels, x.as<T>(), y.as<T>()), y.as<T>());
  });
}

void cuda::max_pool2d_backward(const ExecContext& exec, ConstView dy, ConstView x, const Pool2dParams& params,
                               GradView dx) {
  if (!dx || x.numel() == 0) return;
  with_float_type(x.dtype, [&]<class T>(T) {
    with_float_type(dx.view.dtype, [&]<class G>(G) {
      constexpr int N = kVector<T, G>;
      const Geometry g(x.shape, dy.shape, params);
      const bool apart = g.kernel <= g.stride;
      const auto kernel = apart ? max_backward_by_cell<N, T, G> : max_backward_by_pixel<N, T, G>;
      const int64_t pixels = x.numel() / g.channels / (apart ? g.stride * g.stride : 1) + 1;
      Launch(exec, blocks_of<N>(pixels, g.channels))(kernel, g, dy.as<T>(), x.as<T>(),
                                                     whole_vectors(g.channels, dy.as<T>(), x.as<T>(), dx.view.as<G>()),
                                                     dx.rectify, dx.accumulate, dx.view.as<G>());
    });
  });
}

void cuda::relu_max_pool2d_forward(const ExecContext& exec, ConstView x, ConstView bias, int64_t window, View y,
                                   View winners) {
  if (y.numel() == 0) return;
  with_float_type(x.dtype, [&]<class T>(T) {
    constexpr int N = kVector<T>;
    const Geometry g(x.shape, y.shape, {.kernel = window, .stride = window});
    const T* const added = bias.data == nullptr ? nullptr : bias.as<T>();
    std::uint8_t* const places = winners.data == nullptr ? nullptr : winners.as<std::uint8_t>();
    Launch(exec, blocks_of<N>(y.numel() / g.channels, g.channels))(
        relu_max_forward_kernel<N, T>, g, x.as<T>(), added,
        whole_vectors(g.channels, x.as<T>(), y.as<T>(), added) && aligned(places), y.as<T>(), places);
  });
}

void cuda::relu_max_pool2d_backward(const ExecContext& exec, ConstView dy, ConstView winners, int64_t window, View dx,
                                    GradView dbias) {
  if (dx.numel() > 0) {
    with_float_type(dy.dtype, [&]<class T>(T) {
      constexpr int N = kVector<T>;
      const Geometry g(dx.shape, dy.shape, {.kernel = window, .stride = window});
      const auto* const places = winners.as<std::uint8_t>();
      const int64_t pixels = dx.numel() / g.channels / (window * window) + dx.shape[0] * (dx.shape[1] + dx.shape[2]);
      Launch(exec, blocks_of<N>(pixels, g.channels))(
          relu_max_backward_kernel<N, T>, g, dy.as<T>(), places,
          whole_vectors(g.channels, dy.as<T>(), dx.as<T>()) && aligned(places), dx.as<T>());
    });
  }
  if (dbias) bias_gradient(exec, dx, dbias);
}

void cuda::avg_pool2d_forward(const ExecContext& exec, ConstView x, const Pool2dParams& params, View y) {
  if (y.numel() == 0) return;
  with_float_type(x.dtype, [&]<class T>(T) {
    constexpr int N = kVector<T>;
    const Geometry g(x.shape, y.shape, params);
    Launch(exec, blocks_of<N>(y.numel() / g.channels, g.channels))(
        avg_forward_kernel<N, T>, g, x.as<T>(), whole_vectors(g.channels, x.as<T>(), y.as<T>()), y.as<T>());
  });
}

void cuda::avg_pool2d_backward(const ExecContext& exec, ConstView dy, const Pool2dParams& params, GradView dx) {
  if (!dx || dx.view.numel() == 0) return;
  with_float_type(dy.dtype, [&]<class T>(T) {
    with_float_type(dx.view.dtype, [&]<class G>(G) {
      constexpr int N = kVector<T, G>;
      const Geometry g(dx.view.shape, dy.shape, params);
      Launch(exec, blocks_of<N>(dx.view.numel() / g.channels, g.channels))(
          avg_backward_kernel<N, T, G>, g, dy.as<T>(), whole_vectors(g.channels, dy.as<T>(), dx.view.as<G>()),
          dx.accumulate, dx.view.as<G>());
    });
  });
}

}  // namespace lockstep::kernels
