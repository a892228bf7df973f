// The gradient of the weights, (O x products) = dy^T (O x pixels) patch (pixels x products): every warp adds up tiles
// of 16 pixels, a block adds up its warps, and a second kernel the blocks. A column of ones behind the products gives
// the gradient of the bias.
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/patch.cuh"
#include "kernels/cuda/patch_conv2d.h"

namespace lockstep::kernels {
namespace {

using cuda::PatchGeometry;
using std::int64_t;

constexpr int kWarps = 8;
constexpr int kGroupPixels = 16 * kWarps * 6;
constexpr int kMostBlocks = 2 * cuda::kSms;
constexpr int kStages = 4;              // tiles of dy under way, for each warp
constexpr int kSharedBytes = 99 << 10;  // what a block can have on every GPU since sm_86
constexpr std::uint32_t kOnes = 0x3F803F80;

// Bytes of a row of a tile of dy (kTiles * 16 channels of a pixel): rows start in different banks.
template <int kTiles>
inline constexpr int kRowBytes = kTiles * 32 + 16;
template <int kTiles>
inline constexpr int kWarpBytes = kStages * 16 * kRowBytes<kTiles>;

// dy, tile by tile, through the calling warp's part of shared memory.
template <int kTiles>
struct Gradients {
  const bfloat16* dy;
  int outputs;
  bool vectors;  // whole rows can be copied without waiting
  unsigned char* memory;
  int lane;

  __device__ unsigned char* stage(int i) const { return memory + i % kStages * 16 * kRowBytes<kTiles>; }

  // Zeros in the channels that there are not.
  __device__ void clear() const {
    for (int i = lane; i < kWarpBytes<kTiles> / 4; i += 32) reinterpret_cast<std::uint32_t*>(memory)[i] = 0;
    __syncwarp();
  }

  // Starts to copy 16 pixels, of which `count` exist; the others are 0.
  __device__ void start(int i, int64_t pixel, int count) const {
    unsigned char* const to = stage(i);
    if (vectors) {
      const int row_chunks = outputs / 8;
      for (int chunk = lane; chunk < 16 * row_chunks; chunk += 32) {
        const int row = chunk / row_chunks;
        const int part = chunk - row * row_chunks;
        const bool exists = row < count;
        cuda::copy_async<16>(to + row * kRowBytes<kTiles> + part * 16,
                             dy + (exists ? (pixel + row) * outputs + part * 8 : 0), !exists);
      }
    } else {
      for (int element = lane; element < 16 * outputs; element += 32) {
        const int row = element / outputs;
        const int channel = element - row * outputs;
        reinterpret_cast<bfloat16*>(to + row * kRowBytes<kTiles>)[channel] =
            row < count ? dy[(pixel + row) * outputs + channel] : bfloat16{0};
      }
    }
  }

  // Fragments of dy^T: channels x pixels.
  __device__ void fragments(int i, std::uint32_t (&a)[kTiles][4]) const {
    const int row = lane % 8 + lane / 16 * 8;
    const int half = lane / 8 % 2;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      cuda::load_transposed(a[m], stage(i) + row * kRowBytes<kTiles> + (2 * m + half) * 16);
    }
  }
};

// kTiles of 16 outputs, kColumns of 8 products; sums (blocks, O, products), bias_sums (blocks, O) or null.
template <int kTiles, int kColumns>
__global__ void __launch_bounds__(32 * kWarps) weight_kernel(PatchGeometry g, const bfloat16* dy, const bfloat16* x,
                                                             int outputs, bool vectors, float* sums, float* bias_sums) {
  constexpr int kWidth = kColumns * 8;
  auto* const memory = cuda::dynamic_shared<unsigned char>();
  auto* const patch = reinterpret_cast<bfloat16*>(memory + kWarps * kWarpBytes<kTiles>);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int column = lane / 4;
  const int pair = 2 * (lane % 4);
  const Gradients<kTiles> gradients = {dy, outputs, vectors, memory + warp * kWarpBytes<kTiles>, lane};
  gradients.clear();

  int offsets[kColumns];
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    const int k = n * 8 + column;
    offsets[n] = k < g.products() ? g.offset(k) : 0;
  }
  float total[kTiles][kColumns][4] = {};

  for (int64_t index = blockIdx.x; index < g.groups; index += gridDim.x) {
    const auto group = g.group(index);
    const int tiles = (group.pixels + 15) / 16;
    const int mine = tiles > warp ? (tiles - warp + kWarps - 1) / kWarps : 0;
    const auto start = [&](int i) {
      const int pixel = (warp + i * kWarps) * 16;
      if (i < mine) gradients.start(i, group.first_pixel + pixel, group.pixels - pixel);
      cuda::commit_copies();
    };
    __syncthreads();
    g.load(x, group, patch);
    if (index == blockIdx.x) cuda::begin_kernel();  // x is old, dy may not be
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) start(i);
    __syncthreads();
    for (int i = 0; i < mine; ++i) {
      start(i + kStages - 1);
      cuda::wait_for_copies<kStages - 1>();
      __syncwarp();
      std::uint32_t a[kTiles][4];
      gradients.fragments(i, a);
      const bfloat16* windows[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int pixel = (warp + i * kWarps) * 16 + pair + k % 2 + k / 2 * 8;
        windows[k] = patch + g.window(min(pixel, group.pixels - 1));
      }
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const bool ones = n * 8 + column == g.products();
        const std::uint32_t near = ones ? kOnes : cuda::pack(windows[0][offsets[n]], windows[1][offsets[n]]);
        const std::uint32_t far = ones ? kOnes : cuda::pack(windows[2][offsets[n]], windows[3][offsets[n]]);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) cuda::multiply_add(total[m][n], a[m], near, far);
      }
      __syncwarp();  // the stage is free again
    }
  }

  // The warps' sums, in order; the memory of the tiles is free.
  auto* const block_sums = reinterpret_cast<float*>(memory);
  for (int turn = 0; turn < kWarps; ++turn) {
    __syncthreads();
    if (warp != turn) continue;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& sum = block_sums[(m * 16 + column + e / 2 * 8) * kWidth + n * 8 + pair + e % 2];
          sum = turn == 0 ? total[m][n][e] : sum + total[m][n][e];
        }
      }
    }
  }
  __syncthreads();
  for (int i = thread; i < outputs * g.products(); i += 32 * kWarps) {
    const int output = i / g.products();
    sums[static_cast<int64_t>(blockIdx.x) * outputs * g.products() + i] =
        block_sums[output * kWidth + i - output * g.products()];
  }
  if (bias_sums == nullptr) return;
  for (int output = thread; output < outputs; output += 32 * kWarps) {
    bias_sums[static_cast<int64_t>(blockIdx.x) * outputs + output] = block_sums[output * kWidth + g.products()];
  }
}

// Calls body(std::integral_constant tiles, columns) with the smallest kernel that is compiled for so many outputs and
// products, and a column of ones; false where there is none.
template <class Body>
bool with_size(int64_t outputs, int64_t products, Body&& body) {
  const auto attempt = [&]<int kTiles, int kColumns>() {
    if (outputs > kTiles * 16 || products + 1 > kColumns * 8) return false;
    body(std::integral_constant<int, kTiles>{}, std::integral_constant<int, kColumns>{});
    return true;
  };
  return attempt.template operator()<1, 4>() || attempt.template operator()<2, 4>() ||
         attempt.template operator()<4, 4>() || attempt.template operator()<1, 20>();
}

PatchGeometry geometry(const Shape& x, const Shape& weight, const Shape& dy, const Conv2dParams& params) {
  return {x, dy, weight[1], weight[2], params.stride, params.padding, kGroupPixels};
}

template <int kTiles, int kColumns>
int shared_bytes(const PatchGeometry& g) {
  return std::max(kWarps * kWarpBytes<kTiles> + g.patch_bytes<bfloat16>(), kTiles * 16 * kColumns * 8 * 4);
}

}  // namespace

bool cuda::tiles_weight_gradient_fits(const Shape& x, const Shape& weight, const Shape& dy,
                                      const Conv2dParams& params) {
  const PatchGeometry g = geometry(x, weight, dy, params);
  int bytes = 0;
  const bool found = with_size(weight[0], g.products(),
                               [&](auto tiles, auto columns) { bytes = shared_bytes<tiles.value, columns.value>(g); });
  return found && g.products() > 0 && g.width <= 4096 && bytes <= kSharedBytes;
}

void cuda::tiles_weight_gradient(const ExecContext& exec, ConstView dy, ConstView x, const Conv2dParams& params,
                                 GradView dweight, GradView dbias) {
  const Shape& weight = dweight.view.shape;
  const PatchGeometry g = geometry(x.shape, weight, dy.shape, params);
  const int64_t outputs = weight[0];
  const int64_t blocks = std::min<int64_t>(g.groups, kMostBlocks);
  auto* const sums = static_cast<float*>(
      exec.workspace->reserve(static_cast<std::size_t>(blocks * (dweight.view.numel() + outputs)) * sizeof(float)));
  float* const bias_sums = dbias ? sums + blocks * dweight.view.numel() : nullptr;
  const auto* const gradients = dy.as<bfloat16>();
  with_size(outputs, g.products(), [&](auto tiles, auto columns) {
    Launch(exec, static_cast<unsigned>(blocks), 32 * kWarps,
           static_cast<std::size_t>(shared_bytes<tiles.value, columns.value>(g)))(
        weight_kernel<tiles.value, columns.value>, g, gradients, x.as<bfloat16>(), static_cast<int>(outputs),
        outputs % 8 == 0 && aligned(gradients), sums, bias_sums);
  });
  add_rows(exec, sums, blocks, dweight);
  add_rows(exec, bias_sums, blocks, dbias);
}

}  // namespace lockstep::kernels
