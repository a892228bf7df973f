#include "kernels/pooling.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

// Channels that are handled together, so that the inner loops run over neighbouring elements and stay in registers.
constexpr std::int64_t kChannelBlock = 64;

struct Window {
  std::int64_t y0, y1, x0, x1;  // within the image
};

// Calls body(output pixel, window) for every window of image n.
template <class Body>
void for_windows(const Shape& x, const Shape& y, const Pool2dParams& params, std::int64_t n, Body&& body) {
  for (std::int64_t oy = 0; oy < y[1]; ++oy) {
    for (std::int64_t ox = 0; ox < y[2]; ++ox) {
      const std::int64_t top = oy * params.stride - params.padding;
      const std::int64_t left = ox * params.stride - params.padding;
      body((n * y[1] + oy) * y[2] + ox,
           Window{std::max<std::int64_t>(top, 0), std::min(top + params.kernel, x[1]),
                  std::max<std::int64_t>(left, 0), std::min(left + params.kernel, x[2])});
    }
  }
}

// Calls body(input pixel) for every pixel of the window, in row order.
template <class Body>
void for_pixels(const Shape& x, std::int64_t n, const Window& window, Body&& body) {
  for (std::int64_t iy = window.y0; iy < window.y1; ++iy) {
    for (std::int64_t ix = window.x0; ix < window.x1; ++ix) body((n * x[1] + iy) * x[2] + ix);
  }
}

template <class Body>
void for_channel_blocks(std::int64_t channels, Body&& body) {
  for (std::int64_t c = 0; c < channels; c += kChannelBlock) body(c, std::min(kChannelBlock, channels - c));
}

std::int64_t image_elements(const Shape& x) { return x[1] * x[2] * x[3]; }

std::int64_t image_grain(const Shape& x) {
  return cpu::kElementGrain / std::max<std::int64_t>(image_elements(x), 1);
}

// Windows may overlap and may leave pixels out: gradients are added to zeros, or to what is there.
template <class T>
void clear_unless_accumulating(const GradView& dx, std::int64_t begin, std::int64_t end) {
  if (dx.accumulate) return;
  const std::int64_t elements = image_elements(dx.view.shape);
  std::fill(dx.view.as<T>() + begin * elements, dx.view.as<T>() + end * elements, T{0});
}

}  // namespace

void cpu::max_pool2d_forward(const ExecContext& exec, ConstView x, const Pool2dParams& params, View y) {
  with_float_type(x.dtype, [&]<class T>(T) {
    const std::int64_t channels = x.shape[3];
    parallel_for(exec, x.shape[0], image_grain(x.shape), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        for_windows(x.shape, y.shape, params, n, [&](std::int64_t out_pixel, const Window& window) {
          T* const out = y.as<T>() + out_pixel * channels;
          std::fill(out, out + channels, -std::numeric_limits<T>::infinity());
          for_pixels(x.shape, n, window, [&](std::int64_t in_pixel) {
            const T* const in = x.as<T>() + in_pixel * channels;
#pragma omp simd
            for (std::int64_t c = 0; c < channels; ++c) out[c] = in[c] > out[c] ? in[c] : out[c];
          });
        });
      }
    });
  });
}

void cpu::max_pool2d_backward(const ExecContext& exec, ConstView dy, ConstView x, const Pool2dParams& params,
                              GradView dx) {
  with_float_type(x.dtype, [&]<class T>(T) {
    const std::int64_t channels = x.shape[3];
    parallel_for(exec, x.shape[0], image_grain(x.shape), [&](std::int64_t begin, std::int64_t end) {
      clear_unless_accumulating<T>(dx, begin, end);
      for (std::int64_t n = begin; n < end; ++n) {
        for_windows(x.shape, dy.shape, params, n, [&](std::int64_t out_pixel, const Window& window) {
          for_channel_blocks(channels, [&](std::int64_t first, std::int64_t count) {
            T largest[kChannelBlock];
            std::int64_t place[kChannelBlock];
            std::fill_n(largest, count, -std::numeric_limits<T>::infinity());
            std::fill_n(place, count, (n * x.shape[1] + window.y0) * x.shape[2] + window.x0);
            for_pixels(x.shape, n, window, [&](std::int64_t in_pixel) {
              const T* const in = x.as<T>() + in_pixel * channels + first;
#pragma omp simd
              for (std::int64_t c = 0; c < count; ++c) {
                const bool larger = in[c] > largest[c];
                largest[c] = larger ? in[c] : largest[c];
                place[c] = larger ? in_pixel : place[c];
              }
            });
            for (std::int64_t c = 0; c < count; ++c) {
              dx.view.as<T>()[place[c] * channels + first + c] += dy.as<T>()[out_pixel * channels + first + c];
            }
          });
        });
      }
    });
  });
}

void cpu::avg_pool2d_forward(const ExecContext& exec, ConstView x, const Pool2dParams& params, View y) {
  with_float_type(x.dtype, [&]<class T>(T) {
    const std::int64_t channels = x.shape[3];
    const T factor = T{1} / static_cast<T>(params.kernel * params.kernel);
    parallel_for(exec, x.shape[0], image_grain(x.shape), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        for_windows(x.shape, y.shape, params, n, [&](std::int64_t out_pixel, const Window& window) {
          T* const out = y.as<T>() + out_pixel * channels;
          std::fill(out, out + channels, T{0});
          for_pixels(x.shape, n, window, [&](std::int64_t in_pixel) {
            const T* const in = x.as<T>() + in_pixel * channels;
#pragma omp simd
            for (std::int64_t c = 0; c < channels; ++c) out[c] += factor * in[c];
          });
        });
      }
    });
  });
}

void cpu::avg_pool2d_backward(const ExecContext& exec, ConstView dy, const Pool2dParams& params, GradView dx) {
  with_float_type(dy.dtype, [&]<class T>(T) {
    const Shape& x = dx.view.shape;
    const std::int64_t channels = x[3];
    const T factor = T{1} / static_cast<T>(params.kernel * params.kernel);
    parallel_for(exec, x[0], image_grain(x), [&](std::int64_t begin, std::int64_t end) {
      clear_unless_accumulating<T>(dx, begin, end);
      for (std::int64_t n = begin; n < end; ++n) {
        for_windows(x, dy.shape, params, n, [&](std::int64_t out_pixel, const Window& window) {
          const T* const grad = dy.as<T>() + out_pixel * channels;
          for_pixels(x, n, window, [&](std::int64_t in_pixel) {
            T* const out = dx.view.as<T>() + in_pixel * channels;
#pragma omp simd
            for (std::int64_t c = 0; c < channels; ++c) out[c] += factor * grad[c];
          });
        });
      }
    });
  });
}

}  // namespace lockstep::kernels
