// Both kernels gather values from a patch and multiply them by rows of a matrix: lanes are pixels and the rows weights,
// or lanes are products and the rows gradients of pixels. A step runs each once, so that its instructions are new to
// every SM: what counts is that there are few.
#include <limits>

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/patch.cuh"
#include "kernels/cuda/patch_conv2d.h"

namespace lockstep::kernels {
namespace {

using cuda::Floats;
using cuda::Lanes;
using cuda::PatchGeometry;
using std::int64_t;

constexpr int kWarps = 16;
constexpr int kBlock = 32 * kWarps;  // threads
constexpr int kTile = 8;             // channels of the target that a block computes
constexpr int kTerms = 4;            // of a sum, at once
constexpr int kPixels = 4;           // of the target that a thread computes
constexpr int kGroupPixels = 512;
constexpr int kSharedBytes = 64 << 10;
constexpr int kPartBytes = 32 << 10;  // of the sums that are added up in shared memory

__host__ __device__ constexpr int whole_terms(int count) { return (count + kTerms - 1) / kTerms * kTerms; }

__device__ inline float at_byte(const float* from, int bytes) {
  return *reinterpret_cast<const float*>(reinterpret_cast<const char*>(from) + bytes);
}

// How a block's warps compute kTile sums for each of `units`, kUnits a lane: each chunk of 32 kUnits is a task, and
// several warps share its terms.
template <int kUnits>
struct Split {
  static constexpr int kChunk = 32 * kUnits;
  cuda::Divisor tasks;
  int shares;
  int sums;  // of a share; they meet in shared memory, (shares, units, kTile)

  explicit Split(int units) : tasks((units + kChunk - 1) / kChunk), sums(tasks * kChunk * kTile) {
    shares = std::max(1, std::min(kWarps / static_cast<int>(tasks), kPartBytes / (sums * 4)));
  }

  bool fits() const { return tasks <= kWarps; }
  int bytes() const { return shares * sums * 4; }
};

// The calling thread's part in it.
template <int kUnits>
struct Part {
  Split<kUnits> split;
  int share, first_unit;  // share: all of them are taken where it is less than split.shares
  Floats<kTile> sums[kUnits] = {};

  __device__ explicit Part(const Split<kUnits>& by) : split(by) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    share = warp / split.tasks;
    first_unit = (warp - share * split.tasks) * Split<kUnits>::kChunk + static_cast<int>(threadIdx.x) % 32;
  }
  __device__ bool works() const { return share < split.shares; }
  __device__ int unit(int i) const { return first_unit + 32 * i; }

  // Adds value_of(i, places[t]) * matrix[t] to the sums of unit i, for the share's terms t of `terms`, a multiple of
  // kTerms.
  template <class ValueOf>
  __device__ void add(int terms, const int* places, const float* matrix, ValueOf value_of) {
    struct alignas(16) Places {
      int of[kTerms];
    };
#pragma unroll 1
    for (int first = share * kTerms; first < terms; first += split.shares * kTerms) {
      const Places place = *reinterpret_cast<const Places*>(places + first);
#pragma unroll
      for (int t = 0; t < kTerms; ++t) {
        const auto factors = cuda::load<kTile>(matrix + (first + t) * kTile);
#pragma unroll
        for (int i = 0; i < kUnits; ++i) {
          const float value = value_of(i, place.of[t]);
#pragma unroll
          for (int c = 0; c < kTile; ++c) sums[i][c] += value * factors[c];
        }
      }
    }
  }

  __device__ void store(float* parts) const {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      auto* const to = reinterpret_cast<float4*>(parts + share * split.sums + unit(i) * kTile);
#pragma unroll
      for (int c = 0; c < kTile; c += 4) {
        to[c / 4] = make_float4(sums[i][c], sums[i][c + 1], sums[i][c + 2], sums[i][c + 3]);
      }
    }
  }
  // Sum i of all shares, added in order to `start`.
  __device__ float total(const float* parts, int i, float start) const {
#pragma unroll 4
    for (int s = 0; s < split.shares; ++s) start += parts[s * split.sums + i];
    return start;
  }
};

// Where element (channel of the target, product) of the weights lies: for the gradient of x they are turned round.
struct Weights {
  const float* data;
  bool turned;
  int channels, channel_step, tap_step, depth_step, first;

  Weights(const Shape& weight, const float* address, bool turns)
      : data(address), turned(turns), channels(static_cast<int>(weight[turns ? 3 : 0])) {
    const int depth = static_cast<int>(weight[3]);
    const int taps = static_cast<int>(weight[1] * weight[2]);
    channel_step = turned ? 1 : taps * depth;
    tap_step = turned ? -depth : depth;
    depth_step = turned ? taps * depth : 1;
    first = turned ? (taps - 1) * depth : 0;
  }
};

// least: of the sums; those below are written as it.
template <class G>
__global__ void __launch_bounds__(kBlock)
    pixel_kernel(PatchGeometry g, Split<kPixels> split, Weights weights, const float* source, const float* bias,
                 float least, bool accumulate, G* target) {
  const int thread = static_cast<int>(threadIdx.x);
  const int products = g.products();
  const int terms = whole_terms(products);
  auto* const offsets = cuda::dynamic_shared<int>();               // of the products, in bytes
  auto* const matrix = reinterpret_cast<float*>(offsets + terms);  // (terms, kTile)
  float* const patch = matrix + terms * kTile;
  // Products past the end have a weight of 0: any element does.
#pragma unroll 1
  for (int k = thread; k < terms; k += kBlock) offsets[k] = k < products ? 4 * g.offset(k) : 0;
  if (!weights.turned) cuda::begin_kernel();
  const int channel = static_cast<int>(blockIdx.y) * kTile + thread % kTile;  // of each element that the thread moves
  const bool exists = channel < weights.channels;
  cuda::gather(weights.data, terms * kTile, matrix, [&](int i) {
    const int k = i / kTile;
    const int tap = k / g.depth;
    const int at = weights.first + tap * weights.tap_step + (k - tap * g.depth) * weights.depth_step;
    return cuda::Origin{exists && k < products, at + channel * weights.channel_step};
  });
  if (weights.turned) cuda::begin_kernel();  // backward's are old
  const float start = bias != nullptr && exists ? bias[channel] : 0.0F;

  for (int64_t index = blockIdx.x; index < g.groups; index += gridDim.x) {
    const auto group = g.group(index);
    g.load(source, group, patch);
    cuda::wait_for_copies<0>();
    __syncthreads();
    Part<kPixels> part(split);
    if (part.works()) {
      const float* windows[kPixels];
#pragma unroll
      for (int i = 0; i < kPixels; ++i) windows[i] = patch + g.window(min(part.unit(i), group.pixels - 1));
      part.add(terms, offsets, matrix, [&](int i, int offset) { return at_byte(windows[i], offset); });
    }
    __syncthreads();
    if (part.works()) part.store(patch);
    __syncthreads();
#pragma unroll 1
    for (int i = thread; exists && i < group.pixels * kTile; i += kBlock) {
      const float sum = part.total(patch, i, start);
      cuda::write(target + (group.first_pixel + i / kTile) * weights.channels + channel,
                  Floats<1>{{sum < least ? least : sum}}, 1, false, accumulate);
    }
    __syncthreads();
  }
}

// sums (blocks, O, products), bias_sums (blocks, O) or null: behind the products comes a 1, for the gradient of the
// bias.
template <class T>
__global__ void __launch_bounds__(kBlock) weight_kernel(PatchGeometry g, Split<1> split, int outputs, const T* dy,
                                                        const T* x, float* sums, float* bias_sums) {
  const int thread = static_cast<int>(threadIdx.x);
  const int products = g.products();
  const int terms = whole_terms(g.rows * g.width);
  auto* const windows = cuda::dynamic_shared<int>();                  // of the pixels, in bytes
  auto* const gradients = reinterpret_cast<float*>(windows + terms);  // (terms, kTile)
  float* const patch = gradients + terms * kTile;
  // Pixels past the end have a gradient of 0: any window does.
#pragma unroll 1
  for (int pixel = thread; pixel < terms; pixel += kBlock)
    windows[pixel] = 4 * g.window(min(pixel, g.rows * g.width - 1));
  Part<1> part(split);
  const int product = part.unit(0);
  const float* const values = patch + (product < products ? g.offset(product) : 0);

  const int channel = static_cast<int>(blockIdx.y) * kTile + thread % kTile;  // of each element that the thread moves
  const bool exists = channel < outputs;
  for (int64_t index = blockIdx.x; index < g.groups; index += gridDim.x) {
    const auto group = g.group(index);
    g.load(x, group, patch);
    if (index == blockIdx.x) cuda::begin_kernel();  // x is old, dy may not be
    cuda::gather(dy + group.first_pixel * outputs, terms * kTile, gradients, [&](int i) {
      const int pixel = i / kTile;
      return cuda::Origin{exists && pixel < group.pixels, pixel * outputs + channel};
    });
    cuda::wait_for_copies<0>();
    __syncthreads();
    if (part.works()) {
      part.add(terms, windows, gradients,
               [&](int, int window) { return product < products ? at_byte(values, window) : 1.0F; });
    }
    __syncthreads();
  }

  if (part.works()) part.store(gradients);
  __syncthreads();
  float* const block_sums = sums + (static_cast<int64_t>(blockIdx.x) * outputs + channel) * products;
#pragma unroll 1
  for (int i = thread; exists && i < (products + 1) * kTile; i += kBlock) {
    const float sum = part.total(gradients, i, 0);
    if (i / kTile < products) {
      block_sums[i / kTile] = sum;
    } else if (bias_sums != nullptr) {
      bias_sums[static_cast<int64_t>(blockIdx.x) * outputs + channel] = sum;
    }
  }
}

unsigned tiles_of(int64_t channels) { return static_cast<unsigned>((channels + kTile - 1) / kTile); }

// Pixels of a group: so few that there are blocks for all SMs, if that is not too few.
int64_t group_pixels(const Shape& target, int64_t channels) {
  return std::clamp<int64_t>(target[0] * target[1] * target[2] * tiles_of(channels) / cuda::kSms, 32, kGroupPixels);
}

PatchGeometry forward_geometry(const Shape& x, const Shape& weight, const Shape& y, const Conv2dParams& params) {
  return {x, y, weight[1], weight[2], params.stride, params.padding, group_pixels(y, weight[0]), Lanes::pixels};
}

PatchGeometry weight_geometry(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params) {
  return {x, dy, weight[1], weight[2], params.stride, params.padding, group_pixels(dy, weight[0]), Lanes::products};
}

PatchGeometry gradient_geometry(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params) {
  return {dy, x, weight[1], weight[2], 1, weight[1] - 1 - params.padding, group_pixels(x, weight[3]), Lanes::pixels};
}

Split<kPixels> pixel_split(const PatchGeometry& g) { return Split<kPixels>(g.rows * g.width); }
Split<1> weight_split(const PatchGeometry& g) { return Split<1>(g.products() + 1); }

// The parts of the sums lie where the patch was.
int pixel_bytes(const PatchGeometry& g) {
  return whole_terms(g.products()) * (kTile + 1) * 4 + std::max(g.patch_bytes<float>(), pixel_split(g).bytes());
}

// They lie where the gradients and the patch were.
int weight_bytes(const PatchGeometry& g) {
  const int terms = whole_terms(g.rows * g.width);
  return terms * 4 + std::max(terms * kTile * 4 + g.patch_bytes<float>(), weight_split(g).bytes());
}

bool small(const PatchGeometry& g, const Shape& weight) {
  return g.products() > 0 && g.width <= 4096 && weight.numel() <= 8192 && weight[0] <= 64 && weight[3] <= 64;
}

bool pixels_fit(const PatchGeometry& g, const Shape& weight) {
  return small(g, weight) && pixel_split(g).fits() && pixel_bytes(g) <= kSharedBytes;
}

bool forward_fits(const Shape& x, const Shape& weight, const Shape& y, const Conv2dParams& params) {
  return pixels_fit(forward_geometry(x, weight, y, params), weight);
}

bool data_gradient_fits(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params) {
  return params.stride == 1 && weight[1] == weight[2] && params.padding < weight[1] &&
         pixels_fit(gradient_geometry(x, weight, dy, params), weight);
}

bool weight_gradient_fits(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params) {
  const PatchGeometry g = weight_geometry(x, weight, dy, params);
  return small(g, weight) && weight_split(g).fits() && weight_bytes(g) <= kSharedBytes;
}

template <class G>
void launch(const ExecContext& exec, const PatchGeometry& g, const Weights& weights, const float* source,
            const float* bias, bool relu, bool accumulate, G* target) {
  constexpr float kUnlimited = -std::numeric_limits<float>::infinity();
  constexpr int64_t kMostBlocks = 4 * cuda::kSms;
  const dim3 blocks(static_cast<unsigned>(std::min(g.groups, kMostBlocks)), tiles_of(weights.channels));
  cuda::Launch(exec, blocks, kBlock, static_cast<std::size_t>(pixel_bytes(g)))(
      pixel_kernel<G>, g, pixel_split(g), weights, source, bias, relu ? 0.0F : kUnlimited, accumulate, target);
}

void forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias, const Conv2dParams& params,
             bool relu, View y) {
  launch(exec, forward_geometry(x.shape, weight.shape, y.shape, params), {weight.shape, weight.as<float>(), false},
         x.as<float>(), bias.data == nullptr ? nullptr : bias.as<float>(), relu, false, y.as<float>());
}

void data_gradient(const ExecContext& exec, ConstView dy, ConstView weight, const Conv2dParams& params, GradView dx) {
  cuda::with_float_type(dx.view.dtype, [&]<class G>(G) {
    launch(exec, gradient_geometry(dx.view.shape, weight.shape, dy.shape, params),
           {weight.shape, weight.as<float>(), true}, dy.as<float>(), nullptr, false, dx.accumulate, dx.view.as<G>());
  });
}

void weight_gradient(const ExecContext& exec, ConstView dy, ConstView x, const Conv2dParams& params, GradView dweight,
                     GradView dbias) {
  constexpr int64_t kMostBlocks = 2 * cuda::kSms;  // their sums are added up by another kernel
  const Shape& weight = dweight.view.shape;
  const PatchGeometry g = weight_geometry(x.shape, weight, dy.shape, params);
  const int64_t blocks = std::min(g.groups, kMostBlocks);
  auto* const sums = static_cast<float*>(
      exec.workspace->reserve(static_cast<std::size_t>(blocks * (weight.numel() + weight[0])) * sizeof(float)));
  float* const bias_sums = dbias ? sums + blocks * weight.numel() : nullptr;
  cuda::with_float_type(x.dtype, [&]<class T>(T) {
    cuda::Launch(exec, dim3(static_cast<unsigned>(blocks), tiles_of(weight[0])), kBlock,
                 static_cast<std::size_t>(weight_bytes(g)))(
        weight_kernel<T>, g, weight_split(g), static_cast<int>(weight[0]), dy.as<T>(), x.as<T>(), sums, bias_sums);
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
