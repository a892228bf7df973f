// A block computes a tile of 32 x 32. Its warps share the sums: each takes its part of every chunk of the depth, and
// they are added up at the end. All chunks of a moderate depth are on their way to shared memory before the first is
// used.
#include "kernels/cuda/linear_tiles.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"

namespace lockstep::kernels {
namespace {

using cuda::Floats;
using std::int64_t;

constexpr int kTile = 32;
constexpr int kWarps = 4;
constexpr int kBlock = 32 * kWarps;
constexpr int kChunk = 128;                  // of the depth
constexpr int kWarpDepth = kChunk / kWarps;  // of a chunk
constexpr int kStages = 8;                   // chunks under way
constexpr int kLongRow = kChunk + 8;         // elements of a row in shared memory: rows start in different banks
constexpr int kShortRow = kTile + 8;
constexpr int kFactorElements = kChunk * kShortRow;  // of a factor's part of a stage, however it lies
static_assert(kFactorElements >= kTile * kLongRow);
constexpr int kStageBytes = 2 * kFactorElements * static_cast<int>(sizeof(bfloat16));

// A factor of a product: `lines` rows of `width` elements that lie one behind the other.
struct Factor {
  const bfloat16* data;
  int lines, width;
  int unit;  // elements that can be copied at once

  Factor(const ConstView& view)
      : data(view.as<bfloat16>()), lines(static_cast<int>(view.shape[0])), width(static_cast<int>(view.shape[1])) {
    unit = 8;
    while (unit > 1 && (width % unit != 0 || reinterpret_cast<std::uintptr_t>(data) % (unit * sizeof(bfloat16)) != 0)) {
      unit /= 2;
    }
  }
};

// What is done with the sums, element (row, column) of the result.
struct Result {
  void* data = nullptr;
  bool f32 = false;
  bool accumulate = false;
  int rows = 0, columns = 0;
  const bfloat16* bias = nullptr;       // (columns), added
  bool relu = false;                    // then the larger of that and 0
  const bfloat16* rectifier = nullptr;  // of the shape of the result: where it is not positive, so is the result 0
  bool vectors = false;                 // rows can be accessed by 16 bytes
};

// The sums of the first factor's lines, a vector of as many elements as the result has rows.
struct LineSums {
  void* data = nullptr;
  bool f32 = false;
  bool accumulate = false;
};

// out = a b. The depth runs along the lines of a, or, where it is transposed, across them; of b the other way round.
struct Product {
  Factor a, b;
  int depth;
  Result out;
  LineSums sums;

  __host__ __device__ int column_tiles() const { return (out.columns + kTile - 1) / kTile; }
  __host__ __device__ int tiles() const { return (out.rows + kTile - 1) / kTile * column_tiles(); }
  __host__ __device__ int chunks() const { return (depth + kChunk - 1) / kChunk; }
};

// Starts to copy kLines x kWidth elements, from (line, first) on, to rows of kRow; zeros where the factor ends.
template <int kLines, int kWidth, int kRow, int kUnit>
__device__ void copy_units(const Factor& factor, int line, int first, bfloat16* to) {
  constexpr int kUnits = kWidth / kUnit;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < kLines * kUnits; i += kBlock) {
    const int row = i / kUnits;
    const int column = i % kUnits * kUnit;
    const bool inside = line + row < factor.lines && first + column < factor.width;
    const bfloat16* const from =
        factor.data + (inside ? static_cast<int64_t>(line + row) * factor.width + first + column : 0);
    if constexpr (kUnit > 1) {
      cuda::copy_async<kUnit * sizeof(bfloat16)>(to + row * kRow + column, from, !inside);
    } else {
      to[row * kRow + column] = inside ? *from : bfloat16{0};
    }
  }
}

template <int kLines, int kWidth, int kRow>
__device__ void copy_part(const Factor& factor, int line, int first, bfloat16* to) {
  switch (factor.unit) {
    case 8:
      return copy_units<kLines, kWidth, kRow, 8>(factor, line, first, to);
    case 4:
      return copy_units<kLines, kWidth, kRow, 4>(factor, line, first, to);
    case 2:
      return copy_units<kLines, kWidth, kRow, 2>(factor, line, first, to);
    default:
      return copy_units<kLines, kWidth, kRow, 1>(factor, line, first, to);
  }
}

// One chunk of a factor's tile. kAlong: the depth runs along the lines.
template <bool kAlong>
__device__ void copy_chunk(const Factor& factor, int tile, int chunk, bfloat16* to) {
  if constexpr (kAlong) {
    copy_part<kTile, kChunk, kLongRow>(factor, tile * kTile, chunk * kChunk, to);
  } else {
    copy_part<kChunk, kTile, kShortRow>(factor, chunk * kChunk, tile * kTile, to);
  }
}

// Fragments of 16 lines of the result's rows x 16 of the depth, from `k` on.
template <bool kAlong>
__device__ void load_a(std::uint32_t (&a)[4], const bfloat16* part, int row, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (kAlong) {
    cuda::load_matrices(a, part + (row + lane % 16) * kLongRow + k + lane / 16 * 8);
  } else {
    cuda::load_transposed(a, part + (k + lane % 8 + lane / 16 * 8) * kShortRow + row + lane / 8 % 2 * 8);
  }
}

// Two fragments, of 16 columns of the result: b[0], b[1] are the first's.
template <bool kAlong>
__device__ void load_b(std::uint32_t (&b)[4], const bfloat16* part, int column, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (kAlong) {
    cuda::load_matrices(b, part + (column + lane % 8 + lane / 16 * 8) * kLongRow + k + lane / 8 % 2 * 8);
  } else {
    cuda::load_transposed(b, part + (k + lane % 16) * kShortRow + column + lane / 16 * 8);
  }
}

template <int N>
__device__ Floats<N> load_any(const void* data, bool f32, int64_t at, int count, bool vectors) {
  return f32 ? cuda::load<N>(static_cast<const float*>(data) + at, count, vectors)
             : cuda::load<N>(static_cast<const bfloat16*>(data) + at, count, vectors);
}

template <int N>
__device__ void write_any(void* data, bool f32, bool accumulate, int64_t at, const Floats<N>& values, int count,
                          bool vectors) {
  if (f32) {
    cuda::write(static_cast<float*>(data) + at, values, count, vectors, accumulate);
  } else {
    cuda::write(static_cast<bfloat16*>(data) + at, values, count, vectors, accumulate);
  }
}

// Eight neighbouring elements of the result.
__device__ void finish(const Result& out, int row, int column, Floats<8> values) {
  const int count = min(8, out.columns - column);
  const int64_t at = static_cast<int64_t>(row) * out.columns + column;
  if (out.bias != nullptr) {
    const auto added = cuda::load_first<8>(out.bias + column, count);
#pragma unroll
    for (int k = 0; k < 8; ++k) values[k] += added[k];
  }
  if (out.relu) {
#pragma unroll
    for (int k = 0; k < 8; ++k) values[k] = values[k] < 0 ? 0.0F : values[k];
  }
  if (out.rectifier == nullptr) return write_any(out.data, out.f32, out.accumulate, at, values, count, out.vectors);
  if (out.accumulate) {
    const auto before = load_any<8>(out.data, out.f32, at, count, out.vectors);
#pragma unroll
    for (int k = 0; k < 8; ++k) values[k] += before[k];
  }
  const auto sign = cuda::load<8>(out.rectifier + at, count, out.vectors);
#pragma unroll
  for (int k = 0; k < 8; ++k) values[k] = sign[k] <= 0 ? 0.0F : values[k];
  write_any(out.data, out.f32, false, at, values, count, out.vectors);
}

template <bool kAlongA, bool kAlongB>
__device__ void compute_tile(const Product& p, int tile) {
  auto* const memory = cuda::dynamic_shared<bfloat16>();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int tile_row = tile / p.column_tiles();
  const int tile_column = tile - tile_row * p.column_tiles();
  const int chunks = p.chunks();
  const bool sums_lines = !kAlongA && p.sums.data != nullptr && tile_column == 0;

  const auto a_part = [&](int chunk) { return memory + chunk % kStages * 2 * kFactorElements; };
  const auto b_part = [&](int chunk) { return a_part(chunk) + kFactorElements; };
  const auto start = [&](int chunk) {
    if (chunk < chunks) {
      copy_chunk<kAlongA>(p.a, tile_row, chunk, a_part(chunk));
      copy_chunk<kAlongB>(p.b, tile_column, chunk, b_part(chunk));
    }
    cuda::commit_copies();
  };
  for (int chunk = 0; chunk < kStages; ++chunk) start(chunk);

  float sums[2][4][4] = {};  // 16 rows, 8 columns each
  float line_sum = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    cuda::wait_for_copies<kStages - 1>();
    __syncthreads();
    const bfloat16* const a_tile = a_part(chunk);
    const bfloat16* const b_tile = b_part(chunk);
    if (chunk * kChunk + warp * kWarpDepth < p.depth) {
#pragma unroll
      for (int k = warp * kWarpDepth; k < (warp + 1) * kWarpDepth; k += 16) {
        std::uint32_t a[2][4], b[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          load_a<kAlongA>(a[i], a_tile, 16 * i, k);
          load_b<kAlongB>(b[i], b_tile, 16 * i, k);
        }
#pragma unroll
        for (int m = 0; m < 2; ++m) {
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            cuda::multiply_add(sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
          }
        }
      }
      if (sums_lines) {
#pragma unroll 8
        for (int k = warp * kWarpDepth; k < (warp + 1) * kWarpDepth; ++k) {
          line_sum += cuda::to_float(a_tile[k * kShortRow + lane]);
        }
      }
    }
    __syncthreads();  // the stage is free again
    start(chunk + kStages);
  }

  // The warps' sums, each (32 x 32), then those of the lines.
  auto* const parts = reinterpret_cast<float*>(memory);
  constexpr int kRow = kTile + 4;
  cuda::wait_for_copies<0>();
  __syncthreads();
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      float* const to = parts + (warp * kTile + 16 * m + lane / 4) * kRow + 8 * n + 2 * (lane % 4);
      to[0] = sums[m][n][0];
      to[1] = sums[m][n][1];
      to[8 * kRow] = sums[m][n][2];
      to[8 * kRow + 1] = sums[m][n][3];
    }
  }
  float* const line_parts = parts + kWarps * kTile * kRow;
  line_parts[warp * kTile + lane] = line_sum;
  __syncthreads();

  const int row = thread / 4;
  const int column = thread % 4 * 8;
  if (tile_row * kTile + row < p.out.rows && tile_column * kTile + column < p.out.columns) {
    Floats<8> values{};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
#pragma unroll
      for (int k = 0; k < 8; ++k) values[k] += parts[(w * kTile + row) * kRow + column + k];
    }
    finish(p.out, tile_row * kTile + row, tile_column * kTile + column, values);
  }
  if (sums_lines && thread < kTile && tile_row * kTile + thread < p.out.rows) {
    Floats<1> sum{};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum[0] += line_parts[w * kTile + thread];
    write_any(p.sums.data, p.sums.f32, p.sums.accumulate, tile_row * kTile + thread, sum, 1, false);
  }
}

__global__ void __launch_bounds__(kBlock) forward_kernel(const __grid_constant__ Product product) {
  cuda::begin_kernel();
  compute_tile<true, true>(product, static_cast<int>(blockIdx.x));
}

// The tiles of the gradient of x, then those of the weight's.
__global__ void __launch_bounds__(kBlock)
    backward_kernel(const __grid_constant__ Product dx, const __grid_constant__ Product dweight, int dx_tiles) {
  cuda::begin_kernel();
  const int tile = static_cast<int>(blockIdx.x);
  if (tile < dx_tiles) {
    compute_tile<true, false>(dx, tile);
  } else {
    compute_tile<false, false>(dweight, tile - dx_tiles);
  }
}

std::size_t shared_bytes(int chunks) {
  constexpr int kSumBytes = kWarps * kTile * (kTile + 4 + 1) * static_cast<int>(sizeof(float));
  return static_cast<std::size_t>(std::max(std::min(chunks, kStages) * kStageBytes, kSumBytes));
}

Result result(const View& view) {
  return {.data = view.data,
          .f32 = view.dtype == DType::f32,
          .rows = static_cast<int>(view.shape[0]),
          .columns = static_cast<int>(view.shape[1]),
          .vectors = view.shape[1] % 8 == 0 && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0};
}

Result result(const GradView& target) {
  Result out = result(target.view);
  out.accumulate = target.accumulate;
  return out;
}

}  // namespace

bool cuda::linear_tiles_fit(const ConstView& x, const Shape& weight) {
  return x.dtype == DType::bf16 && x.numel() > 0 && weight.numel() > 0 && x.numel() < (int64_t{1} << 31) &&
         weight.numel() < (int64_t{1} << 31);
}

void cuda::linear_tiles_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias, bool relu,
                                View y) {
  Product product{.a = x, .b = weight, .depth = static_cast<int>(x.shape[1]), .out = result(y), .sums = {}};
  product.out.bias = bias.data == nullptr ? nullptr : bias.as<bfloat16>();
  product.out.relu = relu;
  Launch(exec, static_cast<unsigned>(product.tiles()), kBlock, shared_bytes(product.chunks()))(forward_kernel, product);
}

void cuda::linear_tiles_backward(const ExecContext& exec, ConstView dy, ConstView x, ConstView weight, GradView dx,
                                 GradView dweight, GradView dbias) {
  Product to_x{.a = dy, .b = weight, .depth = static_cast<int>(dy.shape[1]), .out = {}, .sums = {}};
  Product to_weight{.a = dy, .b = x, .depth = static_cast<int>(dy.shape[0]), .out = {}, .sums = {}};
  int chunks = 0;
  if (dx) {
    to_x.out = result(dx);
    if (dx.unrectified != nullptr) {
      to_x.out.rectifier = x.as<bfloat16>();
      to_x.out.vectors = to_x.out.vectors && aligned(x.as<bfloat16>());
    }
    chunks = to_x.chunks();
  }
  if (dweight) {
    to_weight.out = result(dweight);
    if (dbias) {
      to_weight.sums = {.data = dbias.view.data, .f32 = dbias.view.dtype == DType::f32, .accumulate = dbias.accumulate};
    }
    chunks = std::max(chunks, to_weight.chunks());
  }
  const int tiles = to_x.tiles() + to_weight.tiles();
  if (tiles == 0) return;
  Launch(exec, static_cast<unsigned>(tiles), kBlock, shared_bytes(chunks))(backward_kernel, to_x, to_weight,
                                                                           to_x.tiles());
}

}  // namespace lockstep::kernels
