// A block computes a tile of 32 x 32. Its warps share the sums: each takes its part of every chunk of the depth, and
// they are added up at the end. The chunks of a moderate depth are on their way to shared memory before the first is
// used: all of them, or only so many (kStages) that several blocks share an SM.
#include "kernels/cuda/linear_tiles.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"

namespace lockstep::kernels {
namespace {

using cuda::Floats;
using std::int64_t;

constexpr int kTile = 32;

// How a chunk of a factor lies in shared memory: as lines of the depth, or as lines of the tile. Lines start in
// different banks.
template <class T>
struct Chunk {
  static constexpr int kDepth = 256 / sizeof(T);
  static constexpr int kLongLine = kDepth + 16 / sizeof(T);
  static constexpr int kShortLine = kTile + 16 / sizeof(T);
  static constexpr int kElements = kDepth * kShortLine;  // at most
  static_assert(kElements >= kTile * kLongLine);
  static constexpr int kStageBytes = 2 * kElements * static_cast<int>(sizeof(T));
};

// A factor of a product: `lines` rows of `width` elements that lie one behind the other.
template <class T>
struct Factor {
  const T* data;
  int lines, width;
  int unit;  // elements that can be copied at once

  Factor(const ConstView& view)  // NOLINT: a view is a factor
      : data(view.as<T>()), lines(static_cast<int>(view.shape[0])), width(static_cast<int>(view.shape[1])) {
    unit = 16 / sizeof(T);
    while (unit > 1 && (width % unit != 0 || reinterpret_cast<std::uintptr_t>(data) % (unit * sizeof(T)) != 0)) {
      unit /= 2;
    }
  }
};

// Where numbers go that are f32 or bf16.
struct Target {
  void* data = nullptr;
  bool f32 = false;
  bool accumulate = false;

  Target() = default;
  Target(const View& view, bool adds) : data(view.data), f32(view.dtype == DType::f32), accumulate(adds) {}

  template <int N>
  __device__ Floats<N> read(int64_t at, int count, bool vectors) const {
    return f32 ? cuda::load<N>(static_cast<const float*>(data) + at, count, vectors)
               : cuda::load<N>(static_cast<const bfloat16*>(data) + at, count, vectors);
  }
  template <int N>
  __device__ void write(int64_t at, Floats<N> values, int count, bool vectors) const {
    if (f32) {
      cuda::store(static_cast<float*>(data) + at, values, count, vectors);
    } else {
      cuda::store(static_cast<bfloat16*>(data) + at, values, count, vectors);
    }
  }
};

// The result of a product, and what is done with the sums before they are written.
template <class T>
struct Result {
  Target target;
  int rows = 0, columns = 0;
  const T* bias = nullptr;       // (columns), added
  bool relu = false;             // then the larger of that and 0
  const T* rectifier = nullptr;  // of the shape of the result: where it is not positive, the result is 0
  bool vectors = false;          // rows can be accessed by 16 bytes

  Result() = default;
  Result(const View& view, bool accumulate)
      : target(view, accumulate),
        rows(static_cast<int>(view.shape[0])),
        columns(static_cast<int>(view.shape[1])),
        vectors(columns % 8 == 0 && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0) {}

  // Eight neighbouring elements.
  __device__ void put(int row, int column, Floats<8> values) const {
    const int count = min(8, columns - column);
    const int64_t at = static_cast<int64_t>(row) * columns + column;
    if (bias != nullptr) add(values, cuda::load_first<8>(bias + column, count));
    if (relu) {
#pragma unroll
      for (int k = 0; k < 8; ++k) values[k] = values[k] < 0 ? 0.0F : values[k];
    }
    if (target.accumulate) add(values, target.read<8>(at, count, vectors));
    if (rectifier != nullptr) {
      const auto sign = cuda::load<8>(rectifier + at, count, vectors);
#pragma unroll
      for (int k = 0; k < 8; ++k) values[k] = sign[k] <= 0 ? 0.0F : values[k];
    }
    target.write(at, values, count, vectors);
  }

 private:
  static __device__ void add(Floats<8>& values, const Floats<8>& added) {
#pragma unroll
    for (int k = 0; k < 8; ++k) values[k] += added[k];
  }
};

// out = a b. The depth runs along the lines of a, or across them; the same for b.
template <class T>
struct Product {
  Factor<T> a, b;
  int depth;
  Result<T> out;
  Target sums;  // of the lines of a across the depth, one for each row of the result; null: not wanted

  __host__ __device__ int column_tiles() const { return (out.columns + kTile - 1) / kTile; }
  __host__ __device__ int tiles() const { return (out.rows + kTile - 1) / kTile * column_tiles(); }
  __host__ __device__ int chunks() const { return (depth + Chunk<T>::kDepth - 1) / Chunk<T>::kDepth; }
};

// Starts to copy kLines x kWidth elements, from (line, first) on, to lines of kStep; zeros where the factor ends.
template <int kWarps, int kLines, int kWidth, int kStep, int kUnit, class T>
__device__ void copy_units(const Factor<T>& factor, int line, int first, T* to) {
  constexpr int kUnits = kWidth / kUnit;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < kLines * kUnits; i += 32 * kWarps) {
    const int row = i / kUnits;
    const int column = i % kUnits * kUnit;
    const bool inside = line + row < factor.lines && first + column < factor.width;
    const T* const from = factor.data + (inside ? static_cast<int64_t>(line + row) * factor.width + first + column : 0);
    if constexpr (kUnit * sizeof(T) >= 4) {
      cuda::copy_async<kUnit * sizeof(T)>(to + row * kStep + column, from, !inside);
    } else {
      to[row * kStep + column] = inside ? *from : T{0};
    }
  }
}

template <int kWarps, int kLines, int kWidth, int kStep, class T>
__device__ void copy_part(const Factor<T>& factor, int line, int first, T* to) {
  constexpr int kMost = 16 / sizeof(T);
  if (factor.unit == kMost) return copy_units<kWarps, kLines, kWidth, kStep, kMost>(factor, line, first, to);
  if (factor.unit == kMost / 2) return copy_units<kWarps, kLines, kWidth, kStep, kMost / 2>(factor, line, first, to);
  if constexpr (kMost == 8) {
    if (factor.unit == 2) return copy_units<kWarps, kLines, kWidth, kStep, 2>(factor, line, first, to);
  }
  copy_units<kWarps, kLines, kWidth, kStep, 1>(factor, line, first, to);
}

// One chunk of a factor's tile. kAlong: the depth runs along the lines.
template <int kWarps, bool kAlong, class T>
__device__ void copy_chunk(const Factor<T>& factor, int tile, int chunk, T* to) {
  using C = Chunk<T>;
  if constexpr (kAlong) {
    copy_part<kWarps, kTile, C::kDepth, C::kLongLine>(factor, tile * kTile, chunk * C::kDepth, to);
  } else {
    copy_part<kWarps, C::kDepth, kTile, C::kShortLine>(factor, chunk * C::kDepth, tile * kTile, to);
  }
}

// The sums of a warp: (32 x 32), spread over its lanes.
template <class T>
struct Sums;

template <>
struct Sums<bfloat16> {
  float value[2][4][4] = {};  // of 16 rows, 8 columns each

  // Adds the products of the depth from k to k + kDepth.
  template <int kDepth, bool kAlongA, bool kAlongB>
  __device__ void add(const bfloat16* a_tile, const bfloat16* b_tile, int k) {
#pragma unroll
    for (int step = 0; step < kDepth; step += 16) {
      std::uint32_t a[2][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        load_a<kAlongA>(a[i], a_tile, 16 * i, k + step);
        load_b<kAlongB>(b[i], b_tile, 16 * i, k + step);
      }
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          cuda::multiply_add(value[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
      }
    }
  }

  // Calls body(row, column, sum) for the lane's.
  template <class Body>
  __device__ void for_each(int lane, Body body) const {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) body(16 * m + lane / 4 + e / 2 * 8, 8 * n + 2 * (lane % 4) + e % 2, value[m][n][e]);
      }
    }
  }

 private:
  // Fragments of 16 rows x 16 of the depth.
  template <bool kAlong>
  static __device__ void load_a(std::uint32_t (&a)[4], const bfloat16* tile, int row, int k) {
    using C = Chunk<bfloat16>;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (kAlong) {
      cuda::load_matrices(a, tile + (row + lane % 16) * C::kLongLine + k + lane / 16 * 8);
    } else {
      cuda::load_transposed(a, tile + (k + lane % 8 + lane / 16 * 8) * C::kShortLine + row + lane / 8 % 2 * 8);
    }
  }
  // Two fragments, of 16 columns together.
  template <bool kAlong>
  static __device__ void load_b(std::uint32_t (&b)[4], const bfloat16* tile, int column, int k) {
    using C = Chunk<bfloat16>;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (kAlong) {
      cuda::load_matrices(b, tile + (column + lane % 8 + lane / 16 * 8) * C::kLongLine + k + lane / 8 % 2 * 8);
    } else {
      cuda::load_transposed(b, tile + (k + lane % 16) * C::kShortLine + column + lane / 16 * 8);
    }
  }
};

// A lane has rows lane / 4 + 8 i and columns lane % 4 + 4 j.
template <>
struct Sums<float> {
  float value[4][8] = {};

  template <int kDepth, bool kAlongA, bool kAlongB>
  __device__ void add(const float* a_tile, const float* b_tile, int k) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int step = 0; step < kDepth; step += 4) {
      float a[4][4], b[4][8];
      load<kAlongA, 8>(a, a_tile, lane / 4, k + step);
      load<kAlongB, 4>(b, b_tile, lane % 4, k + step);
#pragma unroll
      for (int d = 0; d < 4; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int j = 0; j < 8; ++j) value[i][j] += a[d][i] * b[d][j];
        }
      }
    }
  }

  template <class Body>
  __device__ void for_each(int lane, Body body) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) body(lane / 4 + 8 * i, lane % 4 + 4 * j, value[i][j]);
    }
  }

 private:
  // Elements first, first + kStep ... of the tile, at four places of the depth from k on.
  template <bool kAlong, int kStep, int kCount>
  static __device__ void load(float (&v)[4][kCount], const float* tile, int first, int k) {
    using C = Chunk<float>;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (kAlong) {
        const float4 four = *reinterpret_cast<const float4*>(tile + (first + kStep * i) * C::kLongLine + k);
        v[0][i] = four.x;
        v[1][i] = four.y;
        v[2][i] = four.z;
        v[3][i] = four.w;
      } else {
#pragma unroll
        for (int d = 0; d < 4; ++d) v[d][i] = tile[(k + d) * C::kShortLine + first + kStep * i];
      }
    }
  }
};

template <int kWarps, int kStages, bool kAlongA, bool kAlongB, class T>
__device__ void compute_tile(const Product<T>& p, int tile) {
  using C = Chunk<T>;
  constexpr int kWarpDepth = C::kDepth / kWarps;
  auto* const memory = cuda::dynamic_shared<T>();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int tile_row = tile / p.column_tiles();
  const int tile_column = tile - tile_row * p.column_tiles();
  const int chunks = p.chunks();
  const bool sums_lines = !kAlongA && p.sums.data != nullptr && tile_column == 0;

  const auto a_part = [&](int chunk) { return memory + chunk % kStages * 2 * C::kElements; };
  const auto b_part = [&](int chunk) { return a_part(chunk) + C::kElements; };
  const auto start = [&](int chunk) {
    if (chunk < chunks) {
      copy_chunk<kWarps, kAlongA>(p.a, tile_row, chunk, a_part(chunk));
      copy_chunk<kWarps, kAlongB>(p.b, tile_column, chunk, b_part(chunk));
    }
    cuda::commit_copies();
  };
  for (int chunk = 0; chunk < kStages; ++chunk) start(chunk);

  Sums<T> sums;
  float line_sum = 0;
  const int k = warp * kWarpDepth;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    cuda::wait_for_copies<kStages - 1>();
    __syncthreads();
    if (chunk * C::kDepth + k < p.depth) {
      sums.template add<kWarpDepth, kAlongA, kAlongB>(a_part(chunk), b_part(chunk), k);
      if (sums_lines) {
#pragma unroll 8
        for (int d = 0; d < kWarpDepth; ++d) {
          line_sum += cuda::to_float(a_part(chunk)[(k + d) * C::kShortLine + lane]);
        }
      }
    }
    __syncthreads();  // the stage is free again
    start(chunk + kStages);
  }

  // The warps' sums, then those of the lines.
  constexpr int kLine = kTile + 4;
  auto* const parts = reinterpret_cast<float*>(memory);
  float* const line_parts = parts + kWarps * kTile * kLine;
  cuda::wait_for_copies<0>();
  __syncthreads();
  sums.for_each(lane, [&](int row, int column, float sum) { parts[(warp * kTile + row) * kLine + column] = sum; });
  line_parts[warp * kTile + lane] = line_sum;
  __syncthreads();

  const int row = thread / 4;
  const int column = thread % 4 * 8;
  if (row < kTile && tile_row * kTile + row < p.out.rows && tile_column * kTile + column < p.out.columns) {
    Floats<8> values{};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] += parts[(w * kTile + row) * kLine + column + i];
    }
    p.out.put(tile_row * kTile + row, tile_column * kTile + column, values);
  }
  if (sums_lines && thread < kTile && tile_row * kTile + thread < p.out.rows) {
    const int64_t at = tile_row * kTile + thread;
    Floats<1> sum{};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum[0] += line_parts[w * kTile + thread];
    if (p.sums.accumulate) sum[0] += p.sums.template read<1>(at, 1, false)[0];
    p.sums.write(at, sum, 1, false);
  }
}

template <int kWarps, int kStages, class T>
__global__ void __launch_bounds__(32 * kWarps) forward_kernel(const __grid_constant__ Product<T> product) {
  cuda::begin_kernel();
  compute_tile<kWarps, kStages, true, true>(product, static_cast<int>(blockIdx.x));
}

// The tiles of the gradient of x, then those of the weight's.
template <int kWarps, int kStages, class T>
__global__ void __launch_bounds__(32 * kWarps)
    backward_kernel(const __grid_constant__ Product<T> dx, const __grid_constant__ Product<T> dweight, int dx_tiles) {
  cuda::begin_kernel();
  const int tile = static_cast<int>(blockIdx.x);
  if (tile < dx_tiles) {
    compute_tile<kWarps, kStages, true, false>(dx, tile);
  } else {
    compute_tile<kWarps, kStages, false, false>(dweight, tile - dx_tiles);
  }
}

template <int kWarps, int kStages, class T>
std::size_t shared_bytes(int chunks) {
  constexpr int kSumBytes = kWarps * kTile * (kTile + 4 + 1) * static_cast<int>(sizeof(float));
  return static_cast<std::size_t>(std::max(std::min(chunks, kStages) * Chunk<T>::kStageBytes, kSumBytes));
}

}  // namespace

bool cuda::linear_tiles_fit(const ConstView& x, const Shape& weight) {
  return x.numel() > 0 && weight.numel() > 0 && x.numel() < (int64_t{1} << 31) && weight.numel() < (int64_t{1} << 31);
}

void cuda::linear_tiles_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias, bool relu,
                                View y, Tiling tiling) {
  with_float_type(x.dtype, [&]<class T>(T) {
    Product<T> product{.a = x, .b = weight, .depth = static_cast<int>(x.shape[1]), .out = {y, false}, .sums = {}};
    product.out.bias = bias.data == nullptr ? nullptr : bias.as<T>();
    product.out.relu = relu;
    const auto launch = [&]<int kWarps, int kStages>() {
      Launch(exec, static_cast<unsigned>(product.tiles()), 32 * kWarps,
             shared_bytes<kWarps, kStages, T>(product.chunks()))(forward_kernel<kWarps, kStages, T>, product);
    };
    tiling == Tiling::deep ? launch.template operator()<4, 8>() : launch.template operator()<8, 8>();
  });
}

void cuda::linear_tiles_backward(const ExecContext& exec, ConstView dy, ConstView x, ConstView weight, GradView dx,
                                 GradView dweight, GradView dbias, Tiling tiling) {
  with_float_type(x.dtype, [&]<class T>(T) {
    Product<T> to_x{.a = dy, .b = weight, .depth = static_cast<int>(dy.shape[1]), .out = {}, .sums = {}};
    Product<T> to_weight{.a = dy, .b = x, .depth = static_cast<int>(dy.shape[0]), .out = {}, .sums = {}};
    int chunks = 0;
    if (dx) {
      to_x.out = {dx.view, dx.accumulate};
      if (dx.unrectified != nullptr) {
        to_x.out.rectifier = x.as<T>();
        to_x.out.vectors = to_x.out.vectors && aligned(x.as<T>());
      }
      chunks = to_x.chunks();
    }
    if (dweight) {
      to_weight.out = {dweight.view, dweight.accumulate};
      if (dbias) to_weight.sums = {dbias.view, dbias.accumulate};
      chunks = std::max(chunks, to_weight.chunks());
    }
    const int tiles = to_x.tiles() + to_weight.tiles();
    if (tiles == 0) return;
    const auto launch = [&]<int kWarps, int kStages>() {
      Launch(exec, static_cast<unsigned>(tiles), 32 * kWarps, shared_bytes<kWarps, kStages, T>(chunks))(
          backward_kernel<kWarps, kStages, T>, to_x, to_weight, to_x.tiles());
    };
    tiling == Tiling::deep ? launch.template operator()<4, 8>() : launch.template operator()<4, 3>();
  });
}

}  // namespace lockstep::kernels
