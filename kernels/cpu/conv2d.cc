// Direct convolution with the register tiles of gemm.h. In NHWC the elements of a window that lie in one image row are
// neighbours: KW * C of them, here called a run. For one row of the kernel,
//   forward          y[pixel][o]        += x[pixel's run][r] * weight[r][o]       vectors along o
//   data gradient    dx[pixel's run][r] += dy[pixel][o]      * weight[o][r]       vectors along the run
//   weight gradient  dweight[o][r]      += dy[pixel][o]      * x[pixel's run][r]  vectors along the run
// are matrix products that read images where they lie. Padded images are copied, one at a time, into a frame of zeros.
#include "kernels/conv2d.h"

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/gemm.h"

namespace lockstep::kernels {
namespace {

using cpu::kLanes;
using cpu::Vector;
using std::int64_t;

struct Geometry {
  Geometry(const Shape& x, const Shape& weight, const Shape& y, const Conv2dParams& params)
      : images(x[0]),
        height(x[1]),
        width(x[2]),
        channels(x[3]),
        outputs(weight[0]),
        kernel_rows(weight[1]),
        run(weight[2] * x[3]),
        out_height(y[1]),
        out_width(y[2]),
        stride(params.stride),
        padding(params.padding) {}

  int64_t image_elements() const { return height * width * channels; }
  int64_t pixels() const { return out_height * out_width; }
  int64_t frame_row() const { return (width + 2 * padding) * channels; }
  int64_t frame_elements() const { return (height + 2 * padding) * frame_row(); }
  // From the run of an output pixel to that of its right neighbour.
  int64_t step() const { return stride * channels; }
  // Where in the frame the run of output pixel (i, j) and kernel row p begins.
  int64_t run_at(int64_t i, int64_t j, int64_t p) const { return (i * stride + p) * frame_row() + j * step(); }

  int64_t images, height, width, channels, outputs, kernel_rows, run, out_height, out_width, stride, padding;
};

// Columns in panels of at most kTileVectors vectors.
template <class V>
struct Panels {
  explicit Panels(int64_t column_count)
      : columns(column_count), vectors((column_count + kLanes<V> - 1) / kLanes<V>) {}

  int64_t padded() const { return vectors * kLanes<V>; }
  // Calls body(first column, columns in the panel, its vectors as a constant).
  template <class Body>
  void for_each(Body&& body) const {
    for (int64_t v = 0; v < vectors; v += cpu::kTileVectors) {
      const int64_t first = v * kLanes<V>;
      cpu::with_constant<cpu::kTileVectors>(std::min<int64_t>(vectors - v, cpu::kTileVectors), [&](auto n) {
        body(first, std::min<int64_t>(columns - first, n * kLanes<V>), n);
      });
    }
  }

  int64_t columns, vectors;
};

// Calls body with a vector type that does not waste most of its lanes on `columns` columns.
template <class T, class Body>
void with_vector(int64_t columns, Body&& body) {
  using Half = Vector<T, std::max(cpu::kVectorBytes / 2, 16)>;
  if (columns <= kLanes<Half>) {
    body(Half{});
  } else {
    body(Vector<T>{});
  }
}

// Hands out pieces of the workspace, aligned to 64 bytes.
template <class T>
class Scratch {
 public:
  static int64_t rounded(int64_t count) { return (count + 15) / 16 * 16; }
  // `count` is the sum of the rounded sizes to be taken.
  Scratch(const ExecContext& exec, int64_t count)
      : next_(static_cast<T*>(exec.workspace->reserve(static_cast<std::size_t>(count) * sizeof(T)))) {}
  T* take(int64_t count) { return std::exchange(next_, next_ + rounded(count)); }

 private:
  T* next_;
};

int64_t parts_of(const ExecContext& exec, const Geometry& g, int64_t items) {
  const int64_t multiplications = g.images * g.pixels() * g.outputs * g.kernel_rows * g.run;
  return std::clamp<int64_t>(multiplications / cpu::kTeamMultiplications, 1,
                             std::clamp<int64_t>(items, 1, exec.threads));
}

// Copies an image into the middle of a frame.
template <class T>
void fill_frame(const Geometry& g, const T* image, T* frame) {
  const int64_t row = g.width * g.channels;
  for (int64_t i = 0; i < g.height; ++i) {
    std::copy_n(image + i * row, row, frame + (i + g.padding) * g.frame_row() + g.padding * g.channels);
  }
}

template <class V, class T = cpu::Element<V>>
void forward(const ExecContext& exec, const Geometry& g, const T* x, const T* weight, const T* bias, T* y) {
  const Panels<V> panels(g.outputs);
  const int64_t depth = g.kernel_rows * g.run;
  const int64_t rows = g.images * g.out_height;
  const int64_t parts = parts_of(exec, g, rows);
  const int64_t packed_size = Scratch<T>::rounded((depth + 1) * panels.padded());
  const int64_t frame_size = g.padding > 0 ? Scratch<T>::rounded(g.frame_elements()) : 0;
  Scratch<T> scratch(exec, packed_size + parts * frame_size);

  // A panel is the bias, then `depth` rows of weights.
  T* const packed = scratch.take(packed_size);
  panels.for_each([&](int64_t column, int64_t live, auto vectors) {
    T* const panel = packed + (depth + 1) * column;
    std::fill_n(panel, vectors * kLanes<V>, T{0});
    if (bias != nullptr) std::copy_n(bias + column, live, panel);
    cpu::pack<V>({weight + column * depth, 1, depth}, depth, live, vectors, panel + vectors * kLanes<V>);
  });

  T* const frames = scratch.take(parts * frame_size);
  cpu::parallel_for(exec, parts, 1, [&](int64_t part, int64_t) {
    T* const frame = frames + part * frame_size;
    std::fill_n(frame, frame_size, T{0});
    const int64_t end = rows * (part + 1) / parts;
    for (int64_t row = rows * part / parts; row < end;) {  // image by image
      const int64_t n = row / g.out_height;
      const int64_t first = row % g.out_height;
      const int64_t last = std::min(g.out_height, first + end - row);
      const T* image = x + n * g.image_elements();
      if (g.padding > 0) {
        fill_frame(g, image, frame);
        image = frame;
      }
      panels.for_each([&](int64_t column, int64_t live, auto vectors) {
        constexpr int64_t width = vectors * kLanes<V>;
        const T* const panel = packed + (depth + 1) * column;
        for (int64_t i = first; i < last; ++i) {
          cpu::for_tiles(g.out_width, [&](int64_t j, auto tile_pixels) {
            cpu::Tile<V, tile_pixels, vectors> tile(panel);
            for (int64_t p = 0; p < g.kernel_rows; ++p) {
              tile.multiply_add(image + g.run_at(i, j, p), g.step(), 1, panel + (1 + p * g.run) * width, width, g.run);
            }
            T* const out = y + ((n * g.out_height + i) * g.out_width + j) * g.outputs + column;
            tile.template write<false>(out, g.outputs, live);
          });
        }
      });
      row += last - first;
    }
  });
}

template <class V, class T = cpu::Element<V>>
void backward_data(const ExecContext& exec, const Geometry& g, const T* dy, const T* weight, const GradView& dx) {
  const Panels<V> panels(g.run);
  const int64_t parts = parts_of(exec, g, g.images);
  const int64_t kernel_row_size = g.outputs * panels.padded();
  const int64_t packed_size = Scratch<T>::rounded(g.kernel_rows * kernel_row_size);
  const int64_t frame_size = Scratch<T>::rounded(g.frame_elements() + panels.padded());  // whole vectors are written
  Scratch<T> scratch(exec, packed_size + parts * frame_size);

  T* const packed = scratch.take(packed_size);
  for (int64_t p = 0; p < g.kernel_rows; ++p) {
    panels.for_each([&](int64_t column, int64_t live, auto vectors) {
      cpu::pack<V>({weight + p * g.run + column, g.kernel_rows * g.run, 1}, g.outputs, live, vectors,
                   packed + p * kernel_row_size + g.outputs * column);
    });
  }

  T* const frames = scratch.take(parts * frame_size);
  cpu::parallel_for(exec, parts, 1, [&](int64_t part, int64_t) {
    T* const frame = frames + part * frame_size;
    for (int64_t n = g.images * part / parts; n < g.images * (part + 1) / parts; ++n) {
      std::fill_n(frame, frame_size, T{0});
      const T* const image_dy = dy + n * g.pixels() * g.outputs;
      for (int64_t p = 0; p < g.kernel_rows; ++p) {
        panels.for_each([&](int64_t column, int64_t, auto vectors) {
          constexpr int64_t width = vectors * kLanes<V>;
          const T* const panel = packed + p * kernel_row_size + g.outputs * column;
          // The rows of a tile are pixels below each other: unlike those of neighbours, their runs do not overlap.
          cpu::for_tiles(g.out_height, [&](int64_t i, auto tile_pixels) {
            for (int64_t j = 0; j < g.out_width; ++j) {
              cpu::Tile<V, tile_pixels, vectors> tile;
              tile.multiply_add(image_dy + (i * g.out_width + j) * g.outputs, g.out_width * g.outputs, 1, panel, width,
                                g.outputs);
              tile.template write<true>(frame + g.run_at(i, j, p) + column, g.stride * g.frame_row(), width);
            }
          });
        });
      }
      cpu::with_write_mode(dx, [&](auto accumulate) {
        const int64_t row = g.width * g.channels;
        for (int64_t i = 0; i < g.height; ++i) {
          T* const to = dx.view.as<T>() + n * g.image_elements() + i * row;
          const T* const from = frame + (i + g.padding) * g.frame_row() + g.padding * g.channels;
#pragma omp simd
          for (int64_t k = 0; k < row; ++k) cpu::write<accumulate>(to[k], from[k]);
        }
      });
    }
  });
}

// Each thread sums over its own images; the threads' sums are added in order.
template <class V, class T = cpu::Element<V>>
void backward_weight(const ExecContext& exec, const Geometry& g, const T* dy, const T* x, const GradView& dweight) {
  const Panels<V> panels(g.run);
  const int64_t parts = parts_of(exec, g, g.images);
  const int64_t sums_row = g.kernel_rows * panels.padded();
  const int64_t sums_size = Scratch<T>::rounded(g.outputs * sums_row);
  const int64_t frame_size = Scratch<T>::rounded(g.frame_elements() + panels.padded());  // whole vectors are read
  Scratch<T> scratch(exec, parts * (sums_size + frame_size));
  T* const all_sums = scratch.take(parts * sums_size);
  T* const frames = scratch.take(parts * frame_size);

  cpu::parallel_for(exec, parts, 1, [&](int64_t part, int64_t) {
    T* const sums = all_sums + part * sums_size;
    T* const frame = frames + part * frame_size;
    std::fill_n(sums, sums_size, T{0});
    std::fill_n(frame, frame_size, T{0});
    for (int64_t n = g.images * part / parts; n < g.images * (part + 1) / parts; ++n) {
      fill_frame(g, x + n * g.image_elements(), frame);
      const T* const image_dy = dy + n * g.pixels() * g.outputs;
      for (int64_t p = 0; p < g.kernel_rows; ++p) {
        panels.for_each([&](int64_t column, int64_t, auto vectors) {
          cpu::for_tiles(g.outputs, [&](int64_t o, auto tile_outputs) {
            cpu::Tile<V, tile_outputs, vectors> tile;
            for (int64_t i = 0; i < g.out_height; ++i) {
              tile.multiply_add(image_dy + i * g.out_width * g.outputs + o, 1, g.outputs,
                                frame + g.run_at(i, 0, p) + column, g.step(), g.out_width);
            }
            tile.template write<true>(sums + o * sums_row + p * panels.padded() + column, sums_row,
                                      vectors * kLanes<V>);
          });
        });
      }
    }
  });

  for (int64_t part = 0; part < parts; ++part) {
    const bool add = dweight.accumulate || part > 0;
    for (int64_t row = 0; row < g.outputs * g.kernel_rows; ++row) {
      const T* const from = all_sums + part * sums_size + row * panels.padded();
      T* const to = dweight.view.as<T>() + row * g.run;
      for (int64_t r = 0; r < g.run; ++r) to[r] = add ? to[r] + from[r] : from[r];
    }
  }
}

}  // namespace

void cpu::conv2d_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias,
                         const Conv2dParams& params, View y) {
  const Geometry g(x.shape, weight.shape, y.shape, params);
  with_float_type(x.dtype, [&]<class T>(T) {
    with_vector<T>(g.outputs, [&]<class V>(V) {
      forward<V>(exec, g, x.as<T>(), weight.as<T>(), bias.data == nullptr ? nullptr : bias.as<T>(), y.as<T>());
    });
  });
}

void cpu::conv2d_backward(const ExecContext& exec, ConstView dy, ConstView x, ConstView weight,
                          const Conv2dParams& params, GradView dx, GradView dweight, GradView dbias) {
  const Geometry g(x.shape, weight.shape, dy.shape, params);
  with_float_type(x.dtype, [&]<class T>(T) {
    with_vector<T>(g.run, [&]<class V>(V) {
      if (dx) backward_data<V>(exec, g, dy.as<T>(), weight.as<T>(), dx);
      if (dweight) backward_weight<V>(exec, g, dy.as<T>(), x.as<T>(), dweight);
    });
    if (dbias) column_sums<T>(exec, dy.as<T>(), g.images * g.pixels(), g.outputs, dbias);
  });
}

}  // namespace lockstep::kernels
