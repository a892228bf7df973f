#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/patch.cuh"
#include "kernels/cuda/patch_conv2d.h"

namespace lockstep::kernels {
namespace {

using cuda::Floats;
using cuda::PatchGeometry;
using std::int64_t;

constexpr int kWarps = 8;
constexpr int kBlock = 32 * kWarps;  // threads
constexpr int kTile = 8;             // channels that a thread computes
constexpr int kGroupPixels = 128;
constexpr int kSms = 132;  // of the largest GPUs
constexpr int kMostBlocks = 4 * kSms;
constexpr int kSharedBytes = 48 << 10;

// The weights in shared memory, (tiles of channels, products, kTile), so that a thread finds what it needs side by
// side.
struct Weights {
  const float* data;
  int channels, depth, taps;
  bool turned;  // the gradient of x: data is (depth, taps, channels), and taps count from the end

  __host__ __device__ int tiles() const { return (channels + kTile - 1) / kTile; }
  __host__ __device__ int products() const { return taps * depth; }
  __host__ __device__ int bytes() const { return tiles() * products() * kTile * static_cast<int>(sizeof(float)); }

  __device__ void load(float* to) const {
    for (int channel = static_cast<int>(threadIdx.x) / 32; channel < tiles() * kTile; channel += kWarps) {
      float* const column = to + channel / kTile * products() * kTile + channel % kTile;
      cuda::in_batches<8>(
          static_cast<int>(threadIdx.x) % 32, products(), 32,
          [&](int k) {
            int at = channel * products() + k;
            if (turned) {
              const int tap = k / depth;
              at = ((k - tap * depth) * taps + taps - 1 - tap) * channels + channel;
            }
            return channel < channels ? data[at] : 0.0F;
          },
          [&](int k, float weight) { column[k * kTile] = weight; });
    }
  }
};

// A thread computes kTile channels of a pixel.
template <class G>
__global__ void __launch_bounds__(kBlock) pixel_kernel(PatchGeometry g, Weights weights, const float* source,
                                                       const float* bias, bool relu, bool accumulate, G* target) {
  auto* const rows = cuda::dynamic_shared<float>();
  float* const patch = rows + weights.bytes() / static_cast<int>(sizeof(float));
  cuda::begin_kernel();
  weights.load(rows);
  for (int64_t index = blockIdx.x; index < g.groups; index += gridDim.x) {
    const auto group = g.group(index);
    __syncthreads();
    g.load(source, group, patch);
    __syncthreads();
    for (int unit = static_cast<int>(threadIdx.x); unit < group.pixels * weights.tiles(); unit += kBlock) {
      const int tile = unit / group.pixels;
      const int pixel = unit - tile * group.pixels;
      const int count = min(kTile, weights.channels - tile * kTile);
      Floats<kTile> sum{};
      if (bias != nullptr) sum = cuda::load_first<kTile>(bias + tile * kTile, count);
      const float* line = patch + g.window(pixel);
      const float* weight = rows + tile * weights.products() * kTile;
      for (int row = 0; row < g.kernel_rows; ++row, line += g.patch_row_size()) {
        for (int column = 0; column < g.kernel_columns; ++column) {
#pragma unroll 4
          for (int d = 0; d < g.depth; ++d, weight += kTile) {
            const float value = line[column * g.pixel_step + d];
            const auto w = cuda::load<kTile>(weight);
#pragma unroll
            for (int k = 0; k < kTile; ++k) sum[k] += value * w[k];
          }
        }
      }
      if (relu) {
#pragma unroll
        for (int k = 0; k < kTile; ++k) sum[k] = sum[k] < 0 ? 0.0F : sum[k];
      }
      cuda::write(target + (group.first_pixel + pixel) * weights.channels + tile * kTile, sum, count, false,
                  accumulate);
    }
  }
}

// Of the gradient of the weights, lane l of a warp has product 32 i + l and kTile outputs; behind the products comes a
// 1, for the gradient of the bias. Warps that are left share the pixels.
struct Tasks {
  int outputs, products;

  __host__ __device__ int rows() const { return (products + 1 + 31) / 32; }
  __host__ __device__ int tiles() const { return (outputs + kTile - 1) / kTile; }
  __host__ __device__ int count() const { return rows() * tiles(); }
  __host__ __device__ int shares() const { return max(1, kWarps / count()); }  // of the pixels
  __host__ __device__ int padded() const { return tiles() * kTile; }
};

// sums (blocks, O, products), bias_sums (blocks, O) or null.
template <int kMostTasks, class T>
__global__ void __launch_bounds__(kBlock)
    weight_kernel(PatchGeometry g, Tasks tasks, const T* dy, const T* x, float* sums, float* bias_sums) {
  auto* const gradients = cuda::dynamic_shared<float>();  // (pixels, padded outputs)
  const int group_pixels = g.rows * g.width;
  auto* const windows = reinterpret_cast<int*>(gradients + group_pixels * tasks.padded());
  float* const patch = reinterpret_cast<float*>(windows + (group_pixels + 3) / 4 * 4);
  cuda::begin_kernel();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int share = warp / tasks.count();
  for (int pixel = thread; pixel < group_pixels; pixel += kBlock) windows[pixel] = g.window(pixel);

  Floats<kTile> total[kMostTasks] = {};
  for (int64_t index = blockIdx.x; index < g.groups; index += gridDim.x) {
    const auto group = g.group(index);
    __syncthreads();
    g.load(x, group, patch);
    cuda::in_batches<4>(
        thread, group.pixels * tasks.padded(), kBlock,
        [&](int i) {
          const int pixel = i / tasks.padded();
          const int output = i - pixel * tasks.padded();
          return output < tasks.outputs ? dy[(group.first_pixel + pixel) * tasks.outputs + output] : T{0};
        },
        [&](int i, T value) { gradients[i] = cuda::to_float(value); });
    __syncthreads();
#pragma unroll
    for (int turn = 0; turn < kMostTasks; ++turn) {
      const int task = warp % tasks.count() + turn * kWarps;
      if (task >= tasks.count() || share >= tasks.shares()) continue;
      const int product = task % tasks.rows() * 32 + lane;
      const int offset = product < tasks.products ? g.offset(product) : 0;
      const float* const grads = gradients + task / tasks.rows() * kTile;
#pragma unroll 4
      for (int pixel = share; pixel < group.pixels; pixel += tasks.shares()) {
        const float value = product < tasks.products ? patch[windows[pixel] + offset] : 1.0F;
        const auto grad = cuda::load<kTile>(grads + pixel * tasks.padded());
#pragma unroll
        for (int k = 0; k < kTile; ++k) total[turn][k] += value * grad[k];
      }
    }
  }

  // The shares, in order.
  float* const parts = gradients;  // (tasks, lanes, kTile)
  for (int turn_share = 0; turn_share < tasks.shares(); ++turn_share) {
    __syncthreads();
#pragma unroll
    for (int turn = 0; turn < kMostTasks; ++turn) {
      const int task = warp % tasks.count() + turn * kWarps;
      if (task >= tasks.count() || share != turn_share) continue;
#pragma unroll
      for (int k = 0; k < kTile; ++k) {
        float& part = parts[(task * 32 + lane) * kTile + k];
        part = turn_share == 0 ? total[turn][k] : part + total[turn][k];
      }
    }
  }
  __syncthreads();
  const auto part_of = [&](int output, int product) {
    const int task = output / kTile * tasks.rows() + product / 32;
    return parts[(task * 32 + product % 32) * kTile + output % kTile];
  };
  for (int i = thread; i < tasks.outputs * tasks.products; i += kBlock) {
    const int output = i / tasks.products;
    sums[static_cast<int64_t>(blockIdx.x) * tasks.outputs * tasks.products + i] =
        part_of(output, i - output * tasks.products);
  }
  if (bias_sums == nullptr) return;
  for (int output = thread; output < tasks.outputs; output += kBlock) {
    bias_sums[static_cast<int64_t>(blockIdx.x) * tasks.outputs + output] = part_of(output, tasks.products);
  }
}

// Pixels of a group: so few that there are `groups`, if that is not too few.
int64_t group_pixels(const Shape& target, int64_t groups) {
  return std::clamp<int64_t>(target[0] * target[1] * target[2] / groups, 32, kGroupPixels);
}

PatchGeometry forward_geometry(const Shape& x, const Shape& weight, const Shape& y, const Conv2dParams& params) {
  return {x, y, weight[1], weight[2], params.stride, params.padding, group_pixels(y, kSms), true};
}

// The sums of the blocks are added up by another kernel: a group for each of the most blocks.
PatchGeometry weight_geometry(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params) {
  return {x, dy, weight[1], weight[2], params.stride, params.padding, group_pixels(dy, kMostBlocks), true};
}

PatchGeometry gradient_geometry(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params) {
  return {dy, x, weight[1], weight[2], 1, weight[1] - 1 - params.padding, group_pixels(x, kSms), true};
}

Weights weights_of(const Shape& weight, bool turned) {
  return {.data = nullptr,
          .channels = static_cast<int>(weight[turned ? 3 : 0]),
          .depth = static_cast<int>(weight[turned ? 0 : 3]),
          .taps = static_cast<int>(weight[1] * weight[2]),
          .turned = turned};
}

Tasks tasks_of(const Shape& weight) {
  return {static_cast<int>(weight[0]), static_cast<int>(weight[1] * weight[2] * weight[3])};
}

int pixel_bytes(const PatchGeometry& g, const Weights& weights) { return weights.bytes() + g.patch_bytes<float>(); }

int weight_bytes(const PatchGeometry& g, const Tasks& tasks) {
  const int pixels = g.rows * g.width;
  const int tiles = pixels * tasks.padded() + (pixels + 3) / 4 * 4;
  return std::max(tiles * 4 + g.patch_bytes<float>(), tasks.count() * 32 * kTile * 4);
}

// The most tasks of a warp that are compiled for.
constexpr int kMostTurns = 2;

bool small(const PatchGeometry& g, const Shape& weight) {
  return g.products() > 0 && g.width <= 4096 && weight.numel() <= 8192 && weight[0] <= 64 && weight[3] <= 64;
}

template <class G>
void launch(const ExecContext& exec, const PatchGeometry& g, const Weights& weights, const float* source,
            const float* bias, bool relu, bool accumulate, G* target) {
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(g.groups, kMostBlocks));
  cuda::Launch(exec, blocks, kBlock, static_cast<std::size_t>(pixel_bytes(g, weights)))(
      pixel_kernel<G>, g, weights, source, bias, relu, accumulate, target);
}

bool forward_fits(const Shape& x, const Shape& weight, const Shape& y, const Conv2dParams& params) {
  const PatchGeometry g = forward_geometry(x, weight, y, params);
  return small(g, weight) && pixel_bytes(g, weights_of(weight, false)) <= kSharedBytes;
}

bool data_gradient_fits(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params) {
  if (params.stride != 1 || weight[1] != weight[2] || params.padding >= weight[1]) return false;
  const PatchGeometry g = gradient_geometry(x, weight, dy, params);
  return small(g, weight) && pixel_bytes(g, weights_of(weight, true)) <= kSharedBytes;
}

bool weight_gradient_fits(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params) {
  const PatchGeometry g = weight_geometry(x, weight, dy, params);
  const Tasks tasks = tasks_of(weight);
  return small(g, weight) && tasks.count() <= kMostTurns * kWarps && weight_bytes(g, tasks) <= kSharedBytes;
}

void forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias, const Conv2dParams& params,
             bool relu, View y) {
  Weights weights = weights_of(weight.shape, false);
  weights.data = weight.as<float>();
  launch(exec, forward_geometry(x.shape, weight.shape, y.shape, params), weights, x.as<float>(),
         bias.data == nullptr ? nullptr : bias.as<float>(), relu, false, y.as<float>());
}

void data_gradient(const ExecContext& exec, ConstView dy, ConstView weight, const Conv2dParams& params, GradView dx) {
  Weights weights = weights_of(weight.shape, true);
  weights.data = weight.as<float>();
  cuda::with_float_type(dx.view.dtype, [&]<class G>(G) {
    launch(exec, gradient_geometry(dx.view.shape, weight.shape, dy.shape, params), weights, dy.as<float>(), nullptr,
           false, dx.accumulate, dx.view.as<G>());
  });
}

void weight_gradient(const ExecContext& exec, ConstView dy, ConstView x, const Conv2dParams& params, GradView dweight,
                     GradView dbias) {
  const Shape& weight = dweight.view.shape;
  const PatchGeometry g = weight_geometry(x.shape, weight, dy.shape, params);
  const Tasks tasks = tasks_of(weight);
  const int64_t blocks = std::min<int64_t>(g.groups, kMostBlocks);
  auto* const sums = static_cast<float*>(
      exec.workspace->reserve(static_cast<std::size_t>(blocks * (weight.numel() + weight[0])) * sizeof(float)));
  float* const bias_sums = dbias ? sums + blocks * weight.numel() : nullptr;
  cuda::with_float_type(x.dtype, [&]<class T>(T) {
    const auto kernel = tasks.count() <= kWarps ? weight_kernel<1, T> : weight_kernel<kMostTurns, T>;
    cuda::Launch(exec, static_cast<unsigned>(blocks), kBlock, static_cast<std::size_t>(weight_bytes(g, tasks)))(
        kernel, g, tasks, dy.as<T>(), x.as<T>(), sums, bias_sums);
  });
  cuda::add_rows(exec, sums, blocks, dweight);
  cuda::add_rows(exec, bias_sums, blocks, dbias);
}

}  // namespace

const cuda::PatchConv2d cuda::kPatchLoops = {.forward_fits = forward_fits,
                                             .data_gradient_fits = data_gradient_fits,
                                             .weight_gradient_fits = weight_gradient_fits,
                                             .forward = forward,
                                             .data_gradient = data_gradient,
                                             .weight_gradient = weight_gradient};

}  // namespace lockstep::kernels
