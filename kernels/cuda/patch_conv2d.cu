// The forward pass and, for a stride of 1, the gradient of x, which is a convolution of dy with the kernel turned
// round. A warp computes 16 pixels x all channels of the target at a time.
#include "kernels/cuda/patch_conv2d.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/patch_rows.cuh"

namespace lockstep::kernels {
namespace {

using cuda::Floats;
using cuda::PatchGeometry;
using cuda::PatchRows;
using std::int64_t;

constexpr int kWarps = 8;
constexpr int kBlock = 32 * kWarps;  // threads
constexpr int kGroupPixels = 512;
constexpr int kMostBlocks = 4 * cuda::kSms;
constexpr int kSharedBytes = 48 << 10;

// The weights as a matrix (channels of the target x products).
struct Weights {
  const bfloat16* first;
  int channels, products;
  cuda::Divisor depth;
  int channel_stride, product_stride, tap_jump;  // tap_jump: what is added to a stride where a tap begins
};

// Which channel column j * 8 + c of the product is. Where there are many tiles of 8 columns, the columns of four are
// dealt out so that a thread holds 8 neighbouring channels, the threads of a row 32.
template <int kTiles>
__device__ int channel_of(int j, int c) {
  if constexpr (kTiles % 4 == 0) return j / 4 * 32 + c / 2 * 8 + j % 4 * 2 + c % 2;
  return j * 8 + c;
}

// The products are padded to kSteps of 16; those past the end have a weight of 0.
template <int kSteps>
inline constexpr int kRow = kSteps * 16 + 8;  // of the weights in shared memory: rows start in different banks

// Copies the weights of the first `products` to shared memory, (columns, kRow).
template <int kTiles, int kSteps>
__device__ void load_weights(const Weights& weights, int products, bfloat16* rows) {
  constexpr int kColumns = kTiles * 8;
  constexpr int kStride = kBlock / kColumns;  // a thread has every so many of a column
  constexpr int kCount = (kSteps * 16 + kStride - 1) / kStride;
  // Neighbouring threads read neighbouring elements.
  const unsigned thread = threadIdx.x;
  const bool along_channels = weights.channel_stride == 1;
  const auto column = static_cast<int>(along_channels ? thread % kColumns : thread / kStride);
  const auto first = static_cast<int>(along_channels ? thread / kColumns : thread % kStride);
  const int channel = channel_of<kTiles>(column / 8, column % 8);
  const bfloat16* const from = weights.first + channel * weights.channel_stride;
  const int end = channel < weights.channels ? weights.products : 0;
  bfloat16 values[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int k = first + i * kStride;
    values[i] = k < end ? from[k * weights.product_stride + k / weights.depth * weights.tap_jump] : bfloat16{0};
  }
  cuda::all_loads_begun();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int k = first + i * kStride;
    if (k < products) rows[column * kRow<kSteps> + k] = values[i];
  }
}

__device__ std::uint32_t word(const bfloat16* pair) { return *reinterpret_cast<const std::uint32_t*>(pair); }

// kTiles of 8 channels; up to kSteps of 16 products.
template <int kTiles, int kSteps, class G>
__global__ void __launch_bounds__(kBlock, 2)
    patch_kernel(PatchRows g, Weights weights, const bfloat16* source, const bfloat16* bias, bool relu, bool vectors,
                 bool accumulate, G* target) {
  constexpr bool kInRegisters = kTiles >= 4;  // the weights: each is used many times
  constexpr int kTurn = kSteps == 2 ? 2 : 5;  // steps whose loads are under way at once
  static_assert(kSteps % kTurn == 0);
  __shared__ __align__(16) bfloat16 rows[kTiles * 8 * kRow<kSteps>];
  __shared__ __align__(8) int offsets[kSteps * 16];
  auto* const patches = cuda::dynamic_shared<bfloat16>();  // of a group and of the next
  const int patch_size = g.patch_bytes<bfloat16>() / static_cast<int>(sizeof(bfloat16));
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int row = lane / 4;
  const int pair = 2 * (lane % 4);
  const int turns = kTurn == kSteps ? 1 : (g.products() + kTurn * 16 - 1) / (kTurn * 16);
  // Products past the end have a weight of 0: any element does.
#pragma unroll 1
  for (int k = thread; k < turns * kTurn * 16; k += kBlock) offsets[k] = k < g.products() ? g.offset(k) : 0;
  cuda::begin_kernel();

  const auto start_group = [&](unsigned index, int buffer) {
    if (index < g.groups) g.start(source, g.group(index), patches + buffer * patch_size);
    cuda::commit_copies();
  };
  start_group(blockIdx.x, 0);
  load_weights<kTiles, kSteps>(weights, turns * kTurn * 16, rows);
  float start[kTiles][2];  // of the sums
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int channel = channel_of<kTiles>(j, pair + k);
      start[j][k] = bias != nullptr && channel < weights.channels ? cuda::to_float(bias[channel]) : 0.0F;
    }
  }
  const bfloat16* const weight_pairs = rows + row * kRow<kSteps> + pair;
  const auto weight = [&](int j, int k) { return word(weight_pairs + j * 8 * kRow<kSteps> + k); };
  std::uint32_t b[kSteps][kTiles][2];
  if constexpr (kInRegisters) {
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        b[s][j][0] = weight(j, s * 16);
        b[s][j][1] = weight(j, s * 16 + 8);
      }
    }
  }

  int buffer = 0;
  for (unsigned index = blockIdx.x; index < g.groups; index += gridDim.x, buffer = 1 - buffer) {
    const auto group = g.group(index);
    const bfloat16* const patch = patches + buffer * patch_size;
    start_group(index + gridDim.x, 1 - buffer);
    cuda::wait_for_copies<1>();
    __syncthreads();
    for (int tile = warp; tile * 16 < group.pixels; tile += kWarps) {
      const auto window = [&](int pixel) { return patch + g.window(min(tile * 16 + pixel, group.pixels - 1)); };
      float sums[kTiles][4];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        sums[j][0] = sums[j][2] = start[j][0];
        sums[j][1] = sums[j][3] = start[j][1];
      }
      // fragment(k, a) reads 16 pixels x 16 products from k on.
      const auto add_up = [&](auto fragment) {
#pragma unroll 1
        for (int turn = 0; turn < turns; ++turn) {
#pragma unroll
          for (int i = 0; i < kTurn; ++i) {
            const int k = (turn * kTurn + i) * 16;
            std::uint32_t a[4];
            fragment(k, a);
#pragma unroll
            for (int j = 0; j < kTiles; ++j) {
              if constexpr (kInRegisters) {
                cuda::multiply_add(sums[j], a, b[i][j][0], b[i][j][1]);
              } else {
                cuda::multiply_add(sums[j], a, weight(j, k), weight(j, k + 8));
              }
            }
          }
        }
      };
      const bfloat16* const windows[2] = {window(row), window(row + 8)};
      if (!kInRegisters && g.depth % 8 == 0) {  // a row of a matrix is 16 bytes of one pixel
        const bfloat16* const own = window(lane % 16);
        add_up([&](int k, std::uint32_t(&a)[4]) { cuda::load_matrices(a, own + offsets[k + lane / 16 * 8]); });
      } else if (!kInRegisters && g.depth % 2 == 0) {  // neighbouring products lie side by side
        add_up([&](int k, std::uint32_t(&a)[4]) {
#pragma unroll
          for (int i = 0; i < 4; ++i) a[i] = word(windows[i % 2] + offsets[k + pair + i / 2 * 8]);
        });
      } else {
        add_up([&](int k, std::uint32_t(&a)[4]) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int2 two = *reinterpret_cast<const int2*>(offsets + k + pair + i / 2 * 8);
            a[i] = cuda::pack(windows[i % 2][two.x], windows[i % 2][two.y]);
          }
        });
      }
      // A thread's neighbouring channels: 8, or the 2 of a tile.
      constexpr int N = kTiles % 4 == 0 ? 8 : 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int pixel = tile * 16 + row + 8 * half;
        if (pixel >= group.pixels) continue;
        G* const to = target + (group.first_pixel + pixel) * weights.channels;
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
    __syncthreads();  // the patch is free again
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
  return attempt.template operator()<1, 2>() || attempt.template operator()<1, 25>() ||
         attempt.template operator()<2, 10>() || attempt.template operator()<4, 2>() ||
         attempt.template operator()<8, 2>();
}

int64_t blocks_of(const PatchRows& g) { return std::min<int64_t>(g.groups, kMostBlocks); }

int patch_bytes(const PatchRows& g) { return g.patch_bytes<bfloat16>() * (g.groups > blocks_of(g) ? 2 : 1); }

bool fits(const PatchRows& g, int64_t channels) {
  int weight_bytes = 0;
  const bool found = with_size(channels, g.products(), [&](auto tiles, auto steps) {
    weight_bytes = tiles.value * 8 * kRow<steps.value> * 2 + steps.value * 64;
  });
  return found && g.products() > 0 && g.groups <= INT32_MAX && g.width <= 4096 &&
         patch_bytes(g) + weight_bytes <= kSharedBytes;
}

// Pixels of a group of the target: a tile for each warp, but no less than a group or two for each SM.
int64_t group_pixels(const Shape& target) {
  const int64_t pixels = target[0] * target[1] * target[2];
  return std::min<int64_t>(std::clamp<int64_t>(16 * kWarps, pixels / (2 * cuda::kSms), pixels / cuda::kSms),
                           kGroupPixels);
}

PatchGeometry forward_geometry(const Shape& x, const Shape& weight, const Shape& y, const Conv2dParams& params) {
  return {x, y, weight[1], weight[2], params.stride, params.padding, group_pixels(y)};
}

PatchGeometry gradient_geometry(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params) {
  return {dy, x, weight[1], weight[2], 1, weight[1] - 1 - params.padding, group_pixels(x)};
}

template <class G>
void launch(const ExecContext& exec, const PatchGeometry& geometry, const Weights& weights, const bfloat16* source,
            const bfloat16* bias, bool relu, bool accumulate, G* target) {
  const PatchRows g(geometry, cuda::aligned(source));
  with_size(weights.channels, g.products(), [&](auto tiles, auto steps) {
    const bool vectors = weights.channels % (tiles.value % 4 == 0 ? 8 : 2) == 0 && cuda::aligned(target);
    cuda::Launch(exec, static_cast<unsigned>(blocks_of(g)), kBlock, static_cast<std::size_t>(patch_bytes(g)))(
        patch_kernel<tiles.value, steps.value, G>, g, weights, source, bias, relu, vectors, accumulate, target);
  });
}

bool forward_fits(const Shape& x, const Shape& weight, const Shape& y, const Conv2dParams& params) {
  return fits({forward_geometry(x, weight, y, params), true}, weight[0]);
}

bool data_gradient_fits(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params) {
  return params.stride == 1 && weight[1] == weight[2] && params.padding < weight[1] &&
         fits({gradient_geometry(x, weight, dy, params), true}, weight[3]);
}

void forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias, const Conv2dParams& params,
             bool relu, View y) {
  const int channels = static_cast<int>(weight.shape[0]);
  const int products = static_cast<int>(weight.numel()) / channels;
  const Weights weights = {.first = weight.as<bfloat16>(),
                           .channels = channels,
                           .products = products,
                           .depth = cuda::Divisor(static_cast<int>(weight.shape[3])),
                           .channel_stride = products,
                           .product_stride = 1,
                           .tap_jump = 0};
  launch(exec, forward_geometry(x.shape, weight.shape, y.shape, params), weights, x.as<bfloat16>(),
         bias.data == nullptr ? nullptr : bias.as<bfloat16>(), relu, false, y.as<bfloat16>());
}

void data_gradient(const ExecContext& exec, ConstView dy, ConstView weight, const Conv2dParams& params, GradView dx) {
  const int depth = static_cast<int>(weight.shape[0]);
  const int channels = static_cast<int>(weight.shape[3]);
  const int taps = static_cast<int>(weight.shape[1] * weight.shape[2]);
  const Weights weights = {.first = weight.as<bfloat16>() + (taps - 1) * channels,  // taps count from the end
                           .channels = channels,
                           .products = taps * depth,
                           .depth = cuda::Divisor(depth),
                           .channel_stride = 1,
                           .product_stride = taps * channels,
                           .tap_jump = -(depth * taps + 1) * channels};
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
