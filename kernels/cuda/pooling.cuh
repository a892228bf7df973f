// What pooling kernels have in common. A thread handles some neighbouring channels of one pixel, of the output or of
// the input. Gradients are gathered, not scattered: no two threads write the same element.
#pragma once

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/pooling.h"

namespace lockstep::kernels::cuda {

struct Range {
  int begin, end;
  __device__ int size() const { return end - begin; }
};

// Windows of one size, `stride` apart.
struct FixedWindows {
  int kernel, stride, padding;

  explicit FixedWindows(const Pool2dParams& params)
      : kernel(static_cast<int>(params.kernel)),
        stride(static_cast<int>(params.stride)),
        padding(static_cast<int>(params.padding)) {}

  // The part of [0, size) that window i covers.
  __device__ Range window(int i, int size, int) const {
    const int begin = i * stride - padding;
    return {max(begin, 0), min(begin + kernel, size)};
  }
  // The windows that cover place i of [0, size).
  __device__ Range windows_of(int i, int, int windows) const {
    const int past = i + padding - kernel;  // windows up to here end before the place
    return {past < 0 ? 0 : past / stride + 1, min((i + padding) / stride + 1, windows)};
  }
  // What an element counts in the mean of a window.
  __device__ float weight(Range, Range) const { return 1.0F / static_cast<float>(kernel * kernel); }
};

// Windows that spread evenly over the image. Which windows cover a place follows from the same formula, with the
// numbers of places and of windows exchanged.
struct AdaptiveWindows {
  __device__ Range window(int i, int size, int windows) const {
    return {static_cast<int>(std::int64_t{i} * size / windows),
            static_cast<int>((std::int64_t{i + 1} * size + windows - 1) / windows)};
  }
  __device__ Range windows_of(int i, int size, int windows) const { return window(i, windows, size); }
  __device__ float weight(Range rows, Range columns) const {
    return 1.0F / static_cast<float>(rows.size() * columns.size());
  }
};

template <class Windows>
struct PoolGeometry : Windows {
  int height, width, out_height, out_width;
  std::int64_t images, channels;

  PoolGeometry(const Shape& x, const Shape& y, const Windows& windows)
      : Windows(windows),
        height(static_cast<int>(x[1])),
        width(static_cast<int>(x[2])),
        out_height(static_cast<int>(y[1])),
        out_width(static_cast<int>(y[2])),
        images(x[0]),
        channels(x[3]) {}

  __device__ std::int64_t in(std::int64_t image, int row, int column, std::int64_t channel) const {
    return ((image * height + row) * width + column) * channels + channel;
  }
  __device__ std::int64_t out(std::int64_t image, int row, int column, std::int64_t channel) const {
    return ((image * out_height + row) * out_width + column) * channels + channel;
  }
  __device__ Range rows(int out_row) const { return Windows::window(out_row, height, out_height); }
  __device__ Range columns(int out_column) const { return Windows::window(out_column, width, out_width); }

  // Calls body(row, column) for the pixels of an output pixel's window that lie in the image, in row order.
  template <class Body>
  __device__ void for_window(int out_row, int out_column, Body body) const {
    for_each(rows(out_row), columns(out_column), body);
  }
  // Calls body(output row, output column) for the windows that a pixel lies in, in row order.
  template <class Body>
  __device__ void for_windows_of(int row, int column, Body body) const {
    for_each(Windows::windows_of(row, height, out_height), Windows::windows_of(column, width, out_width), body);
  }

 private:
  template <class Body>
  __device__ static void for_each(Range rows, Range columns, Body body) {
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < columns.end; ++column) body(row, column);
    }
  }
};

// Calls body(image, row, column, channel, count) for the calling thread's vectors of a (images, rows, columns,
// channels).
template <int N, class Body>
__device__ void for_vectors(std::int64_t images, int rows, int columns, std::int64_t channels, Body body) {
  const std::int64_t vectors = (channels + N - 1) / N;  // of a pixel
  const std::int64_t total = images * rows * columns * vectors;
  for (std::int64_t unit = thread_in_grid(); unit < total; unit += threads_in_grid()) {
    const std::int64_t pixel = quotient(unit, vectors);
    const std::int64_t line = quotient(pixel, columns);
    const std::int64_t image = quotient(line, rows);
    const std::int64_t channel = (unit - pixel * vectors) * N;
    body(image, static_cast<int>(line - image * rows), static_cast<int>(pixel - line * columns), channel,
         static_cast<int>(channels - channel < N ? channels - channel : N));
  }
}

// Blocks for `pixels` of `channels`, each thread with N of them.
template <int N>
unsigned blocks_of(std::int64_t pixels, std::int64_t channels) {
  return blocks_for(pixels * ((channels + N - 1) / N), kThreads);
}

template <class... T>
bool whole_vectors(std::int64_t channels, const T*... address) {
  return channels % kVector<T...> == 0 && aligned(address...);
}

}  // namespace lockstep::kernels::cuda
