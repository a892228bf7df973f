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

  int64_t multiplications() const { return images * pixels() * outputs * kernel_rows * run; }

  int64_t images, height, width, channels, outputs, kernel_rows, run, out_height, out_width, stride, padding;
};

// Columns in whole vectors.
template <class V>
int64_t padded(int64_t columns) {
  return (columns + kLanes<V> - 1) / kLanes<V> * kLanes<V>;
}

// Calls body(first column, number of columns) for panels of as many columns as a tile can have.
template <class V, class Body>
void for_panels(int64_t columns, Body&& body) {
  constexpr int64_t width = cpu::kTileVectors * kLanes<V>;
  for (int64_t first = 0; first < columns; first += width) body(first, std::min(width, columns - first));
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

// Threads that share `items` pieces of the work.
int64_t parts_of(const ExecContext& exec, const Geometry& g, int64_t items) {
  return std::clamp<int64_t>(g.multiplications() / cpu::kTeamMultiplications, 1,
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
  const int64_t depth = g.kernel_rows * g.run;
  const int64_t rows = g.images * g.out_height;
  const int64_t parts = parts_of(exec, g, rows);
  const int64_t packed_size = Scratch<T>::rounded((1 + depth) * padded<V>(g.outputs));
  const int64_t frame_size = g.padding > 0 ? Scratch<T>::rounded(g.frame_elements()) : 0;
  Scratch<T> scratch(exec, packed_size + parts * frame_size);

  // A panel is the bias, then `depth` rows of weights.
  T* const packed = scratch.take(packed_size);
  for_panels<V>(g.outputs, [&](int64_t o, int64_t columns) {
    T* const panel = packed + (1 + depth) * o;
    std::fill_n(panel, padded<V>(columns), T{0});
    if (bias != nullptr) std::copy_n(bias + o, columns, panel);
    cpu::pack<V>({weight + o * depth, 1, depth}, depth, columns, panel + padded<V>(columns));
  });

  T* const frames = scratch.take(parts * frame_size);
  cpu::parallel_for(exec, parts, 1, [&](int64_t part, int64_t) {
    T* const frame = frames + part * frame_size;
    std::fill_n(frame, frame_size, T{0});
    const int64_t end = rows * (part + 1) / parts;
    for (int64_t row = rows * part / parts; row < end;) {  // image by image
      const int64_t n = row / g.out_height;
      const int64_t row_end = std::min(end, (n + 1) * g.out_height);
      const T* image = x + n * g.image_elements();
      if (g.padding > 0) {
        fill_frame(g, image, frame);
        image = frame;
      }
      for_panels<V>(g.outputs, [&](int64_t o, int64_t columns) {
        const T* const panel = packed + (1 + depth) * o;
        cpu::Product<T> product{.a_row = g.step(),
                                .a_step = 1,
                                .a_segment = g.frame_row(),
                                .b = panel + padded<V>(columns),
                                .b_step = padded<V>(columns),
                                .b_segment = g.run * padded<V>(columns),
                                .count = g.run,
                                .segments = g.kernel_rows,
                                .initial = panel,
                                .c_row = g.outputs,
                                .columns = columns};
        for (int64_t i = row; i < row_end; ++i) {
          product.a = image + g.run_at(i - n * g.out_height, 0, 0);
          product.c = y + i * g.out_width * g.outputs + o;
          cpu::multiply<V>(product, g.out_width);
        }
      });
      row = row_end;
    }
  });
}

template <class V, class T = cpu::Element<V>>
void backward_data(const ExecContext& exec, const Geometry& g, const T* dy, const T* weight, const GradView& dx) {
  const int64_t parts = parts_of(exec, g, g.images);
  const int64_t kernel_row_size = g.outputs * padded<V>(g.run);
  const int64_t packed_size = Scratch<T>::rounded(g.kernel_rows * kernel_row_size);
  const int64_t frame_size = Scratch<T>::rounded(g.frame_elements() + kLanes<V>);  // whole vectors are written
  Scratch<T> scratch(exec, packed_size + parts * frame_size);

  T* const packed = scratch.take(packed_size);
  for (int64_t p = 0; p < g.kernel_rows; ++p) {
    for_panels<V>(g.run, [&](int64_t r, int64_t columns) {
      cpu::pack<V>({weight + p * g.run + r, g.kernel_rows * g.run, 1}, g.outputs, columns,
                   packed + p * kernel_row_size + g.outputs * r);
    });
  }

  T* const frames = scratch.take(parts * frame_size);
  cpu::parallel_for(exec, parts, 1, [&](int64_t part, int64_t) {
    T* const frame = frames + part * frame_size;
    for (int64_t n = g.images * part / parts; n < g.images * (part + 1) / parts; ++n) {
      std::fill_n(frame, frame_size, T{0});
      for (int64_t p = 0; p < g.kernel_rows; ++p) {
        for_panels<V>(g.run, [&](int64_t r, int64_t columns) {
          // The rows of a tile are pixels below each other: unlike those of neighbours, their runs do not overlap.
          cpu::Product<T> product{.a_row = g.out_width * g.outputs,
                                  .a_step = 1,
                                  .b = packed + p * kernel_row_size + g.outputs * r,
                                  .b_step = padded<V>(columns),
                                  .count = g.outputs,
                                  .c_row = g.stride * g.frame_row(),
                                  .columns = padded<V>(columns),
                                  .accumulate = true};
          for (int64_t j = 0; j < g.out_width; ++j) {
            product.a = dy + (n * g.pixels() + j) * g.outputs;
            product.c = frame + g.run_at(0, j, p) + r;
            cpu::multiply<V>(product, g.out_height);
          }
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

// Sums over groups of images, then over groups in order: how many there are depends on the sizes alone, so that the
// bits do not depend on the number of threads.
template <class V, class T = cpu::Element<V>>
void backward_weight(const ExecContext& exec, const Geometry& g, const T* dy, const T* x, const GradView& dweight) {
  const int64_t sums_row = g.kernel_rows * padded<V>(g.run);
  const int64_t sums_size = Scratch<T>::rounded(g.outputs * sums_row);
  const int64_t group_cost = std::max(4 * cpu::kTeamMultiplications, 64 * sums_size);  // adding up groups costs little
  const int64_t groups = std::clamp<int64_t>(g.multiplications() / group_cost, 1, std::max<int64_t>(g.images, 1));
  const int64_t parts = parts_of(exec, g, groups);
  const int64_t frame_size = Scratch<T>::rounded(g.frame_elements() + kLanes<V>);  // whole vectors are read
  Scratch<T> scratch(exec, groups * sums_size + parts * frame_size);
  T* const all_sums = scratch.take(groups * sums_size);
  T* const frames = scratch.take(parts * frame_size);

  const auto sum_group = [&](int64_t group, T* frame) {
    T* const sums = all_sums + group * sums_size;
    std::fill_n(sums, sums_size, T{0});
    for (int64_t n = g.images * group / groups; n < g.images * (group + 1) / groups; ++n) {
      fill_frame(g, x + n * g.image_elements(), frame);
      for (int64_t p = 0; p < g.kernel_rows; ++p) {
        for_panels<V>(g.run, [&](int64_t r, int64_t columns) {
          cpu::multiply<V>({.a = dy + n * g.pixels() * g.outputs,
                            .a_row = 1,
                            .a_step = g.outputs,
                            .a_segment = g.out_width * g.outputs,
                            .b = frame + g.run_at(0, 0, p) + r,
                            .b_step = g.step(),
                            .b_segment = g.stride * g.frame_row(),
                            .count = g.out_width,
                            .segments = g.out_height,
                            .c = sums + p * padded<V>(g.run) + r,
                            .c_row = sums_row,
                            .columns = padded<V>(columns),
                            .accumulate = true},
                           g.outputs);
        });
      }
    }
  };
  cpu::parallel_for(exec, parts, 1, [&](int64_t part, int64_t) {
    T* const frame = frames + part * frame_size;
    std::fill_n(frame, frame_size, T{0});
    for (int64_t group = groups * part / parts; group < groups * (part + 1) / parts; ++group) sum_group(group, frame);
  });

  const int64_t rows = g.outputs * g.kernel_rows;
  cpu::parallel_for(exec, rows, cpu::kElementGrain / std::max<int64_t>(groups * g.run, 1),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t row = begin; row < end; ++row) {
                        T* const to = dweight.view.as<T>() + row * g.run;
                        if (!dweight.accumulate) std::fill_n(to, g.run, T{0});
                        for (int64_t group = 0; group < groups; ++group) {
                          const T* const from = all_sums + group * sums_size + row * padded<V>(g.run);
#pragma omp simd
                          for (int64_t r = 0; r < g.run; ++r) to[r] += from[r];
                        }
                      }
                    });
}

}  // namespace

void cpu::conv2d_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias,
                         const Conv2dParams& params, Activation activation, View y) {
  const Geometry g(x.shape, weight.shape, y.shape, params);
  with_float_type(x.dtype, [&]<class T>(T) {
    with_vector<T>(g.outputs, [&]<class V>(V) {
      forward<V>(exec, g, x.as<T>(), weight.as<T>(), bias.data == nullptr ? nullptr : bias.as<T>(), y.as<T>());
    });
  });
  if (activation == Activation::relu) relu_forward(exec, y, y);
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
  if (dx.unrectified != nullptr) relu_backward(exec, dx.view, x, {dx.view, false});
}

}  // namespace lockstep::kernels
