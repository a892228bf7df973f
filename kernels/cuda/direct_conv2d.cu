#include "kernels/cuda/direct_conv2d.h"

#include "kernels/cuda/column_sums.cuh"

namespace lockstep::kernels {
namespace {

using std::int64_t;

constexpr int kTile = 8;           // channels of a pixel that a thread computes
constexpr int kDepthChunk = 512;   // weights of so many products are held in shared memory, for kTile channels
constexpr unsigned kPixels = 128;  // of a block, one for each thread

// The forward pass and the gradient of x are one sum: each pixel of the target adds, over the taps of the kernel and
// the channels of the source, source elements times weights.
struct Geometry {
  int height, width;  // of the target
  int source_height, source_width;
  int channels;  // of the target
  int depth;     // channels of the source
  int kernel_rows, kernel_columns, stride, padding;
  int64_t pixels;  // of the target, over all images
};

// Where tap (p, q) of a target pixel reads the source. False where that is no pixel of the source.
template <bool kGradient>
__device__ bool source_of(int target, int tap, int stride, int padding, int extent, int& source) {
  if constexpr (kGradient) {
    const int moved = target + padding - tap;
    source = moved / stride;
    return moved >= 0 && moved == source * stride && source < extent;
  } else {
    source = target * stride + tap - padding;
    return source >= 0 && source < extent;
  }
}

// weight (O, taps, C): depth is C and channels are O forward, the other way round in the gradient.
template <bool kGradient>
__device__ int64_t weight_at(const Geometry& g, int channel, int tap, int d) {
  const int64_t taps = static_cast<int64_t>(g.kernel_rows) * g.kernel_columns;
  return kGradient ? (d * taps + tap) * g.channels + channel : (channel * taps + tap) * g.depth + d;
}

template <bool kGradient, class T, class G>
__global__ void __launch_bounds__(kPixels)
    pixel_kernel(Geometry g, const T* source, const T* weight, const T* bias, bool relu, bool accumulate, G* target) {
  __shared__ __align__(16) float weights[kDepthChunk][kTile];
  cuda::begin_kernel();
  const int first_channel = static_cast<int>(blockIdx.y) * kTile;
  const int count = min(kTile, g.channels - first_channel);
  const int64_t products = static_cast<int64_t>(g.kernel_rows) * g.kernel_columns * g.depth;

  for (int64_t block = blockIdx.x; block * kPixels < g.pixels; block += gridDim.x) {
    const int64_t pixel = block * kPixels + threadIdx.x;
    const bool mine = pixel < g.pixels;
    const int64_t line = cuda::quotient(pixel, g.width);
    const int64_t image = cuda::quotient(line, g.height);
    const int row = static_cast<int>(line - image * g.height);
    const int column = static_cast<int>(pixel - line * g.width);
    cuda::Floats<kTile> sum{};

    for (int64_t begin = 0; begin < products; begin += kDepthChunk) {
      const int chunk = static_cast<int>(products - begin < kDepthChunk ? products - begin : kDepthChunk);
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < chunk * kTile; i += static_cast<int>(kPixels)) {
        // Neighbouring threads read neighbouring weights, as far as the layout has them.
        const int k = kGradient ? i % kTile : i / chunk;
        const int r = kGradient ? i / kTile : i % chunk;
        const int tap = static_cast<int>((begin + r) / g.depth);
        const int d = static_cast<int>((begin + r) % g.depth);
        weights[r][k] = k < count ? cuda::to_float(weight[weight_at<kGradient>(g, first_channel + k, tap, d)]) : 0.0F;
      }
      __syncthreads();
      if (!mine) continue;
      for (int r = 0; r < chunk;) {
        const int tap = static_cast<int>((begin + r) / g.depth);
        const int d = static_cast<int>((begin + r) % g.depth);
        const int run = min(g.depth - d, chunk - r);
        int source_row, source_column;
        if (source_of<kGradient>(row, tap / g.kernel_columns, g.stride, g.padding, g.source_height, source_row) &&
            source_of<kGradient>(column, tap % g.kernel_columns, g.stride, g.padding, g.source_width, source_column)) {
          const T* const from =
              source + ((image * g.source_height + source_row) * g.source_width + source_column) * g.depth + d;
#pragma unroll 4
          for (int i = 0; i < run; ++i) {
            const float value = cuda::to_float(from[i]);
            const auto w = cuda::load<kTile>(weights[r + i]);
#pragma unroll
            for (int k = 0; k < kTile; ++k) sum[k] += value * w[k];
          }
        }
        r += run;
      }
    }
    if (!mine) continue;
    if (bias != nullptr) {
      const auto added = cuda::load_first<kTile>(bias + first_channel, count);
#pragma unroll
      for (int k = 0; k < kTile; ++k) sum[k] += added[k];
    }
    if (relu) {
#pragma unroll
      for (int k = 0; k < kTile; ++k) sum[k] = sum[k] < 0 ? 0.0F : sum[k];
    }
    cuda::write(target + pixel * g.channels + first_channel, sum, count, false, accumulate);
  }
}

template <bool kGradient, class T, class G>
void launch_pixels(const ExecContext& exec, const Geometry& g, const T* source, const T* weight, const T* bias,
                   bool relu, bool accumulate, G* target) {
  const auto tiles = static_cast<unsigned>((g.channels + kTile - 1) / kTile);
  cuda::Launch(exec, dim3(cuda::blocks_for(g.pixels, kPixels), tiles), kPixels)(
      pixel_kernel<kGradient, T, G>, g, source, weight, bias, relu, accumulate, target);
}

// Gradient of the weight: a thread adds, over one part of the output pixels, the products for one element of the kernel
// and kOutputs output channels. sums (parts, O, KH * KW * C).
constexpr int kOutputs = 4;
constexpr unsigned kWeightThreads = 128;

template <class T>
__global__ void __launch_bounds__(kWeightThreads)
    weight_kernel(Geometry g, const T* dy, const T* x, int64_t part_pixels, float* sums) {
  cuda::begin_kernel();
  const int elements = g.kernel_rows * g.kernel_columns * g.depth;  // of the kernel of one output channel
  const int64_t thread = cuda::thread_in_grid();
  const int tile = static_cast<int>(thread / elements);
  const int element = static_cast<int>(thread % elements);
  const int first = tile * kOutputs;
  if (first >= g.channels) return;
  const int count = min(kOutputs, g.channels - first);
  const int tap = element / g.depth;
  const int d = element % g.depth;
  const int row_offset = tap / g.kernel_columns - g.padding;
  const int column_offset = tap % g.kernel_columns - g.padding;

  cuda::Floats<kOutputs> sum{};
  const int64_t begin = blockIdx.y * part_pixels;
  const int64_t end = begin + part_pixels < g.pixels ? begin + part_pixels : g.pixels;
  int64_t line = cuda::quotient(begin, g.width);
  int column = static_cast<int>(begin - line * g.width);
  int64_t image = cuda::quotient(line, g.height);
  int row = static_cast<int>(line - image * g.height);
#pragma unroll 4
  for (int64_t pixel = begin; pixel < end; ++pixel) {
    const int x_row = row * g.stride + row_offset;
    const int x_column = column * g.stride + column_offset;
    float value = 0;
    if (x_row >= 0 && x_row < g.source_height && x_column >= 0 && x_column < g.source_width) {
      value = cuda::to_float(x[((image * g.source_height + x_row) * g.source_width + x_column) * g.depth + d]);
    }
    const auto grad = cuda::load_first<kOutputs>(dy + pixel * g.channels + first, count);
#pragma unroll
    for (int k = 0; k < kOutputs; ++k) sum[k] += grad[k] * value;
    if (++column == g.width) {
      column = 0;
      if (++row == g.height) {
        row = 0;
        ++image;
      }
    }
  }
  float* const out = sums + (static_cast<int64_t>(blockIdx.y) * g.channels + first) * elements + element;
#pragma unroll
  for (int k = 0; k < kOutputs; ++k) {
    if (k < count) out[static_cast<int64_t>(k) * elements] = sum[k];
  }
}

// The geometry of the forward pass.
Geometry geometry(const Shape& x, const Shape& weight, const Shape& y, const Conv2dParams& params) {
  return {.height = static_cast<int>(y[1]),
          .width = static_cast<int>(y[2]),
          .source_height = static_cast<int>(x[1]),
          .source_width = static_cast<int>(x[2]),
          .channels = static_cast<int>(y[3]),
          .depth = static_cast<int>(x[3]),
          .kernel_rows = static_cast<int>(weight[1]),
          .kernel_columns = static_cast<int>(weight[2]),
          .stride = static_cast<int>(params.stride),
          .padding = static_cast<int>(params.padding),
          .pixels = y[0] * y[1] * y[2]};
}

}  // namespace

void cuda::direct_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias,
                          const Conv2dParams& params, bool relu, View y) {
  with_float_type(x.dtype, [&]<class T>(T) {
    launch_pixels<false>(exec, geometry(x.shape, weight.shape, y.shape, params), x.as<T>(), weight.as<T>(),
                         bias.data == nullptr ? nullptr : bias.as<T>(), relu, false, y.as<T>());
  });
}

void cuda::direct_data_gradient(const ExecContext& exec, ConstView dy, ConstView weight, const Conv2dParams& params,
                                GradView dx) {
  const Shape& x = dx.view.shape;
  Geometry g = geometry(x, weight.shape, dy.shape, params);
  std::swap(g.height, g.source_height);
  std::swap(g.width, g.source_width);
  std::swap(g.channels, g.depth);
  g.pixels = x[0] * x[1] * x[2];
  with_float_type(dy.dtype, [&]<class T>(T) {
    with_float_type(dx.view.dtype, [&]<class G>(G) {
      launch_pixels<true, T, G>(exec, g, dy.as<T>(), weight.as<T>(), nullptr, false, dx.accumulate, dx.view.as<G>());
    });
  });
}

void cuda::direct_weight_gradient(const ExecContext& exec, ConstView dy, ConstView x, const Conv2dParams& params,
                                  GradView dweight) {
  constexpr int64_t kMostSums = int64_t{1} << 24;
  const Geometry g = geometry(x.shape, dweight.view.shape, dy.shape, params);
  const int64_t weights = dweight.view.numel();
  const int64_t elements = weights / g.channels;
  const int64_t most_parts = std::clamp<int64_t>(kMostSums / weights, 1, 512);
  const int64_t part_pixels = std::max<int64_t>(64, (g.pixels + most_parts - 1) / most_parts);
  const int64_t parts = std::max<int64_t>(1, (g.pixels + part_pixels - 1) / part_pixels);
  auto* const sums =
      static_cast<float*>(exec.workspace->reserve(static_cast<std::size_t>(parts * weights) * sizeof(float)));
  const int64_t threads = elements * ((g.channels + kOutputs - 1) / kOutputs);
  const dim3 blocks(static_cast<unsigned>((threads + kWeightThreads - 1) / kWeightThreads),
                    static_cast<unsigned>(parts));
  with_float_type(dy.dtype, [&]<class T>(T) {
    Launch(exec, blocks, kWeightThreads)(weight_kernel<T>, g, dy.as<T>(), x.as<T>(), part_pixels, sums);
  });
  add_rows(exec, sums, parts, dweight);
}

}  // namespace lockstep::kernels
