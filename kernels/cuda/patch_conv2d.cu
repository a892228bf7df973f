// The forward pass and, for a stride of 1, the gradient of x, which is a convolution of dy with the kernel turned
// round. A warp computes 16 pixels x all channels of the target at a time.
#include "kernels/cuda/patch_conv2d.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/patch.cuh"

namespace lockstep::kernels {
namespace {

using cuda::Floats;
using cuda::PatchGeometry;
using std::int64_t;

constexpr int kWarps = 8;
constexpr int kGroupPixels = 32 * kWarps * 2;
constexpr int kMostBlocks = 528;
constexpr int kSharedBytes = 48 << 10;

// The weights as a matrix (channels of the target x products).
struct Weights {
  const bfloat16* data;
  int channels, depth, taps;
  bool turned;  // the gradient of x: data is (depth, taps, channels), and taps count from the end

  __device__ bfloat16 at(int channel, int k) const {
    if (channel >= channels || k >= taps * depth) return {0};
    const int tap = k / depth;
    const int d = k - tap * depth;
    return turned ? data[(d * taps + taps - 1 - tap) * channels + channel] : data[channel * taps * depth + k];
  }
};

// Which channel column j * 8 + c of the product is. Where there are many tiles of 8 columns, the columns of four are
// dealt out so that a thread holds 8 neighbouring channels, the threads of a row 32.
template <int kTiles>
__device__ int channel_of(int j, int c) {
  if constexpr (kTiles % 4 == 0) return j / 4 * 32 + c / 2 * 8 + j % 4 * 2 + c % 2;
  return j * 8 + c;
}

// kTiles of 8 channels; kSteps of 16 products.
template <int kTiles, int kSteps, class G>
__global__ void __launch_bounds__(32 * kWarps)
    patch_kernel(PatchGeometry g, Weights weights, const bfloat16* source, const bfloat16* bias, bool relu,
                 bool vectors, bool accumulate, G* target) {
  constexpr int kRow = kSteps * 16 + 8;  // of the weights in shared memory: rows start in different banks
  __shared__ __align__(16) bfloat16 rows[kTiles * 8 * kRow];
  __shared__ __align__(8) int offsets[kSteps * 16];
  auto* const patch = cuda::dynamic_shared<bfloat16>();
  cuda::begin_kernel();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int row = thread % 32 / 4;
  const int pair = 2 * (thread % 4);
  constexpr int kElements = kTiles * 8 * kSteps * 16;
  constexpr int kOfThread = (kElements + 32 * kWarps - 1) / (32 * kWarps);
  cuda::in_batches<kOfThread>(
      thread, kElements, 32 * kWarps,
      [&](int i) {
        const int column = i / (kSteps * 16);
        return weights.at(channel_of<kTiles>(column / 8, column % 8), i % (kSteps * 16));
      },
      [&](int i, bfloat16 weight) { rows[i / (kSteps * 16) * kRow + i % (kSteps * 16)] = weight; });
  // Products past the end have a weight of 0: any element does.
  for (int k = thread; k < kSteps * 16; k += 32 * kWarps) offsets[k] = k < g.products() ? g.offset(k) : 0;
  __syncthreads();

  std::uint32_t b[kSteps][kTiles][2];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const bfloat16* const from = rows + (j * 8 + row) * kRow + s * 16 + pair;
      b[s][j][0] = *reinterpret_cast<const std::uint32_t*>(from);
      b[s][j][1] = *reinterpret_cast<const std::uint32_t*>(from + 8);
    }
  }
  float start[kTiles][2];  // of the sums
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int channel = channel_of<kTiles>(j, pair + k);
      start[j][k] = bias != nullptr && channel < weights.channels ? cuda::to_float(bias[channel]) : 0.0F;
    }
  }

  for (int64_t index = blockIdx.x; index < g.groups; index += gridDim.x) {
    const auto group = g.group(index);
    __syncthreads();
    g.load(source, group, patch);
    __syncthreads();
    for (int tile = warp; tile * 16 < group.pixels; tile += kWarps) {
      const int pixels[2] = {tile * 16 + row, tile * 16 + row + 8};
      const bfloat16* const windows[2] = {patch + g.window(min(pixels[0], group.pixels - 1)),
                                          patch + g.window(min(pixels[1], group.pixels - 1))};
      float sums[kTiles][4];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        sums[j][0] = sums[j][2] = start[j][0];
        sums[j][1] = sums[j][3] = start[j][1];
      }
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const int2 near = *reinterpret_cast<const int2*>(offsets + s * 16 + pair);
        const int2 far = *reinterpret_cast<const int2*>(offsets + s * 16 + pair + 8);
        const std::uint32_t a[4] = {
            cuda::pack(windows[0][near.x], windows[0][near.y]), cuda::pack(windows[1][near.x], windows[1][near.y]),
            cuda::pack(windows[0][far.x], windows[0][far.y]), cuda::pack(windows[1][far.x], windows[1][far.y])};
#pragma unroll
        for (int j = 0; j < kTiles; ++j) cuda::multiply_add(sums[j], a, b[s][j][0], b[s][j][1]);
      }
      // A thread's neighbouring channels: 8, or the 2 of a tile.
      constexpr int N = kTiles % 4 == 0 ? 8 : 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (pixels[half] >= group.pixels) continue;
        G* const to = target + (group.first_pixel + pixels[half]) * weights.channels;
#pragma unroll
        for (int j = 0; j < kTiles; j += N / 2) {
          Floats<N> values;
#pragma unroll
          for (int k = 0; k < N; ++k) {
            values[k] = sums[j + k / 2][2 * half + k % 2];
            if (relu && values[k] < 0) values[k] = 0;
          }
          const int channel = channel_of<kTiles>(j, pair);
          cuda::write(to + channel, values, weights.channels - channel, vectors, accumulate);
        }
      }
    }
  }
}

// Calls body(std::integral_constant tiles, steps) with the smallest kernel that is compiled for so many channels and
// products; false where there is none.
template <class Body>
bool with_size(int64_t channels, int64_t products, Body&& body) {
  const auto attempt = [&]<int kTiles, int kSteps>() {
    if (channels > kTiles * 8 || products > kSteps * 16) return false;
    body(std::integral_constant<int, kTiles>{}, std::integral_constant<int, kSteps>{});
    return true;
  };
  return attempt.template operator()<1, 2>() || attempt.template operator()<2, 2>() ||
         attempt.template operator()<4, 2>() || attempt.template operator()<8, 2>() ||
         attempt.template operator()<1, 10>() || attempt.template operator()<2, 10>() ||
         attempt.template operator()<1, 25>();
}

bool fits(const PatchGeometry& g, int64_t channels) {
  int weight_bytes = 0;
  const bool found = with_size(channels, g.products(), [&](auto tiles, auto steps) {
    weight_bytes = tiles.value * 8 * (steps.value * 16 + 8) * 2 + steps.value * 64;
  });
  return found && g.products() > 0 && g.width <= 4096 && g.patch_bytes<bfloat16>() + weight_bytes <= kSharedBytes;
}

// Pixels of a group of the target: fewer where there would not be work for all SMs.
int64_t group_pixels(const Shape& target) {
  constexpr int64_t kManyGroups = 264;  // two for each SM of the largest GPUs
  return std::clamp<int64_t>(target[0] * target[1] * target[2] / kManyGroups, 64, kGroupPixels);
}

PatchGeometry forward_geometry(const Shape& x, const Shape& weight, const Shape& y, const Conv2dParams& params) {
  return {x, y, weight[1], weight[2], params.stride, params.padding, group_pixels(y)};
}

PatchGeometry gradient_geometry(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params) {
  return {dy, x, weight[1], weight[2], 1, weight[1] - 1 - params.padding, group_pixels(x)};
}

template <class G>
void launch(const ExecContext& exec, const PatchGeometry& g, const Weights& weights, const bfloat16* source,
            const bfloat16* bias, bool relu, bool accumulate, G* target) {
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(g.groups, kMostBlocks));
  with_size(weights.channels, g.products(), [&](auto tiles, auto steps) {
    const bool vectors = weights.channels % (tiles.value % 4 == 0 ? 8 : 2) == 0 && cuda::aligned(target);
    cuda::Launch(exec, blocks, 32 * kWarps, static_cast<std::size_t>(g.patch_bytes<bfloat16>()))(
        patch_kernel<tiles.value, steps.value, G>, g, weights, source, bias, relu, vectors, accumulate, target);
  });
}

bool forward_fits(const Shape& x, const Shape& weight, const Shape& y, const Conv2dParams& params) {
  return fits(forward_geometry(x, weight, y, params), weight[0]);
}

bool data_gradient_fits(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params) {
  return params.stride == 1 && weight[1] == weight[2] && params.padding < weight[1] &&
         fits(gradient_geometry(x, weight, dy, params), weight[3]);
}

void forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias, const Conv2dParams& params,
             bool relu, View y) {
  const Weights weights = {.data = weight.as<bfloat16>(),
                           .channels = static_cast<int>(weight.shape[0]),
                           .depth = static_cast<int>(weight.shape[3]),
                           .taps = static_cast<int>(weight.shape[1] * weight.shape[2]),
                           .turned = false};
  launch(exec, forward_geometry(x.shape, weight.shape, y.shape, params), weights, x.as<bfloat16>(),
         bias.data == nullptr ? nullptr : bias.as<bfloat16>(), relu, false, y.as<bfloat16>());
}

void data_gradient(const ExecContext& exec, ConstView dy, ConstView weight, const Conv2dParams& params, GradView dx) {
  const Weights weights = {.data = weight.as<bfloat16>(),
                           .channels = static_cast<int>(weight.shape[3]),
                           .depth = static_cast<int>(weight.shape[0]),
                           .taps = static_cast<int>(weight.shape[1] * weight.shape[2]),
                           .turned = true};
  cuda::with_float_type(dx.view.dtype, [&]<class G>(G) {
    launch(exec, gradient_geometry(dx.view.shape, weight.shape, dy.shape, params), weights, dy.as<bfloat16>(), nullptr,
           false, dx.accumulate, dx.view.as<G>());
  });
}

}  // namespace

const cuda::PatchConv2d cuda::kPatchTiles = {.forward_fits = forward_fits,
                                             .data_gradient_fits = data_gradient_fits,
                                             .weight_gradient_fits = tiles_weight_gradient_fits,
                                             .forward = forward,
                                             .data_gradient = data_gradient,
                                             .weight_gradient = tiles_weight_gradient};

}  // namespace lockstep::kernels
