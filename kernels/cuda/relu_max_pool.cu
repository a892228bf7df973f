// Max pooling of max(x + bias, 0) over windows that lie side by side. A byte for each window and channel says which
// element won: all that backward needs.
#include "kernels/cuda/column_sums.cuh"
#include "kernels/pooling.h"

namespace lockstep::kernels {
namespace {

using cuda::Floats;
using std::int64_t;

template <int N>
struct alignas(N) Places {
  std::uint8_t value[N];
};

template <int N>
__device__ Places<N> load_places(const std::uint8_t* address, int count, bool vectors) {
  if (vectors) return *reinterpret_cast<const Places<N>*>(address);
  Places<N> places;
#pragma unroll
  for (int k = 0; k < N; ++k) places.value[k] = k < count ? address[k] : kNoWinner;
  return places;
}

template <int N>
__device__ void store_places(std::uint8_t* address, const Places<N>& places, int count, bool vectors) {
  if (vectors) {
    *reinterpret_cast<Places<N>*>(address) = places;
    return;
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (k < count) address[k] = places.value[k];
  }
}

// kWindow: the window where it is known when this is compiled, else 0.
template <int kWindow>
struct Geometry {
  int height, width, out_height, out_width, any_window;
  int64_t channels;

  Geometry(const Shape& x, const Shape& y, int64_t size)
      : height(static_cast<int>(x[1])),
        width(static_cast<int>(x[2])),
        out_height(static_cast<int>(y[1])),
        out_width(static_cast<int>(y[2])),
        any_window(static_cast<int>(size)),
        channels(x[3]) {}
  __device__ int window() const { return kWindow > 0 ? kWindow : any_window; }

  // Offset of element `place` of a window's channels from its first element's.
  __device__ int64_t offset(int i, int j) const { return (static_cast<int64_t>(i) * width + j) * channels; }
  __device__ int64_t in(int64_t image, int row, int column) const {
    return ((image * height + row * window()) * width + column * window()) * channels;
  }
  __device__ int64_t out(int64_t image, int row, int column) const {
    return ((image * out_height + row) * out_width + column) * channels;
  }
};

// A thread handles N channels of one window.
template <int kWindow, int N, class T>
__global__ void forward_kernel(Geometry<kWindow> g, int64_t images, const T* x, const T* bias, bool vectors, T* y,
                               std::uint8_t* winners) {
  cuda::begin_kernel();
  const int64_t pixel_units = (g.channels + N - 1) / N;
  const int64_t units = images * g.out_height * g.out_width * pixel_units;
  for (int64_t unit = cuda::thread_in_grid(); unit < units; unit += cuda::threads_in_grid()) {
    const int64_t pixel = cuda::quotient(unit, pixel_units);
    const int64_t line = cuda::quotient(pixel, g.out_width);
    const int64_t image = cuda::quotient(line, g.out_height);
    const int row = static_cast<int>(line - image * g.out_height);
    const int column = static_cast<int>(pixel - line * g.out_width);
    const int64_t channel = (unit - pixel * pixel_units) * N;
    const int count = static_cast<int>(g.channels - channel < N ? g.channels - channel : N);
    const T* const from = x + g.in(image, row, column) + channel;

    Floats<N> largest = cuda::load<N>(from, count, vectors);
    Places<N> places{};
#pragma unroll
    for (int i = 0; i < g.window(); ++i) {
#pragma unroll
      for (int j = 0; j < g.window(); ++j) {
        if (i == 0 && j == 0) continue;
        const auto values = cuda::load<N>(from + g.offset(i, j), count, vectors);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          // A NaN is the largest of all, so that it is not lost.
          if (values[k] > largest[k] || values[k] != values[k]) {
            largest[k] = values[k];
            places.value[k] = static_cast<std::uint8_t>(i * g.window() + j);
          }
        }
      }
    }
    Floats<N> added{};
    if (bias != nullptr) added = cuda::load<N>(bias + channel, count, vectors);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      largest[k] += added[k];
      if (largest[k] <= 0) {
        largest[k] = 0;
        places.value[k] = kNoWinner;
      }
    }
    const int64_t at = g.out(image, row, column) + channel;
    cuda::store(y + at, largest, count, vectors);
    if (winners != nullptr) store_places(winners + at, places, count, vectors);
  }
}

// Rows of the gradient of y, one for each cell of window^2 pixels, which are written, and those at the lower and right
// edge that fill no window.
template <int kWindow, int N, class T>
struct Cells {
  Geometry<kWindow> g;
  int rows, columns;  // of the cells of an image
  const T* dy;
  const std::uint8_t* winners;
  T* dx;
  bool vectors;

  __device__ void operator()(int64_t cell, int64_t channel, int count, Floats<N>& sum) const {
    const int64_t line = cuda::quotient(cell, columns);
    const int64_t image = cuda::quotient(line, rows);
    const int row = static_cast<int>(line - image * rows);
    const int column = static_cast<int>(cell - line * columns);
    Floats<N> grad{};
    Places<N> places{};
    if (row < g.out_height && column < g.out_width) {
      const int64_t at = g.out(image, row, column) + channel;
      grad = cuda::load<N>(dy + at, count, vectors);
      places = load_places<N>(winners + at, count, vectors);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += places.value[k] == kNoWinner ? 0.0F : grad[k];
    }
    T* const to = dx + g.in(image, row, column) + channel;
#pragma unroll
    for (int i = 0; i < g.window(); ++i) {
#pragma unroll
      for (int j = 0; j < g.window(); ++j) {
        if (row * g.window() + i >= g.height || column * g.window() + j >= g.width) continue;
        Floats<N> values;
#pragma unroll
        for (int k = 0; k < N; ++k) values[k] = places.value[k] == i * g.window() + j ? grad[k] : 0.0F;
        cuda::store(to + g.offset(i, j), values, count, vectors);
      }
    }
  }
};

// Calls body(std::integral_constant<int, kWindow>).
template <class Body>
void with_window(int64_t window, Body&& body) {
  window == 2 ? body(std::integral_constant<int, 2>{}) : body(std::integral_constant<int, 0>{});
}

// Calls body(std::integral_constant<int, N>) with the channels of a thread: as many as 16 bytes hold, or two where
// these do not divide them.
template <class T, class Body>
void with_vector(int64_t channels, Body&& body) {
  constexpr int kMost = cuda::kVector<T>;
  const bool pairs = channels % kMost != 0 && channels % 2 == 0;
  pairs ? body(std::integral_constant<int, 2>{}) : body(std::integral_constant<int, kMost>{});
}

}  // namespace

void cuda::relu_max_pool2d_forward(const ExecContext& exec, ConstView x, ConstView bias, int64_t window, View y,
                                   View winners) {
  if (y.numel() == 0) return;
  with_float_type(x.dtype, [&]<class T>(T) {
    with_window(window, [&](auto known) {
      with_vector<T>(x.shape[3], [&](auto vector) {
        constexpr int N = vector;
        const Geometry<known.value> g(x.shape, y.shape, window);
        const T* const added = bias.data == nullptr ? nullptr : bias.as<T>();
        std::uint8_t* const places = winners.data == nullptr ? nullptr : winners.as<std::uint8_t>();
        const bool vectors = g.channels % N == 0 && aligned(x.as<T>(), added, y.as<T>()) && aligned(places);
        const int64_t units = y.numel() / g.channels * ((g.channels + N - 1) / N);
        Launch(exec, blocks_for(units, kThreads))(forward_kernel<known.value, N, T>, g, y.shape[0], x.as<T>(), added,
                                                  vectors, y.as<T>(), places);
      });
    });
  });
}

void cuda::relu_max_pool2d_backward(const ExecContext& exec, ConstView dy, ConstView winners, int64_t window, View dx,
                                    GradView dbias) {
  const int64_t channels = dx.shape[3];
  if (channels == 0 || (dx.numel() == 0 && !dbias)) return;
  with_float_type(dy.dtype, [&]<class T>(T) {
    with_window(window, [&](auto known) {
      with_vector<T>(channels, [&](auto vector) {
        constexpr int N = vector;
        const auto cells = [window](int64_t pixels) { return static_cast<int>((pixels + window - 1) / window); };
        const Cells<known.value, N, T> rows{
            .g = {dx.shape, dy.shape, window},
            .rows = cells(dx.shape[1]),
            .columns = cells(dx.shape[2]),
            .dy = dy.as<T>(),
            .winners = winners.as<std::uint8_t>(),
            .dx = dx.as<T>(),
            .vectors = channels % N == 0 && aligned(dy.as<T>(), dx.as<T>()) && aligned(winners.as<std::uint8_t>())};
        column_sums<N>(exec, dx.shape[0] * rows.rows * rows.columns, channels, rows, dbias, 2);
      });
    });
  });
}

}  // namespace lockstep::kernels
