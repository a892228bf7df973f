// A tile of 32 x 32 of a product of two matrices, computed by a block. Its warps share the sums: each takes its part of
// every chunk of the depth, and they are added up at the end. The chunks of a moderate depth are on their way to shared
// memory before the first is used: all of them, or only so many (kStages) that several blocks share an SM. Where there
// are too few tiles to keep a GPU busy, the blocks of a cluster share the depth of a tile as well.
//
// A step runs such a kernel once, so that most instructions come from far away: loops stay loops here.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"

namespace lockstep::kernels::cuda {

using std::int64_t;

inline constexpr int kTile = 32;
inline constexpr int kMostSlices = 8;
inline constexpr int kSumLine = kTile + 4;  // floats of a line of sums in shared memory

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
    return f32 ? load<N>(static_cast<const float*>(data) + at, count, vectors)
               : load<N>(static_cast<const bfloat16*>(data) + at, count, vectors);
  }
  template <int N>
  __device__ void write(int64_t at, Floats<N> values, int count, bool vectors) const {
    if (f32) {
      store(static_cast<float*>(data) + at, values, count, vectors);
    } else {
      store(static_cast<bfloat16*>(data) + at, values, count, vectors);
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
    if (bias != nullptr) values += load_first<8>(bias + column, count);
    if (relu) {
#pragma unroll
      for (int k = 0; k < 8; ++k) values[k] = values[k] < 0 ? 0.0F : values[k];
    }
    if (target.accumulate) values += target.read<8>(at, count, vectors);
    if (rectifier != nullptr) {
      const auto sign = load<8>(rectifier + at, count, vectors);
#pragma unroll
      for (int k = 0; k < 8; ++k) values[k] = sign[k] <= 0 ? 0.0F : values[k];
    }
    target.write(at, values, count, vectors);
  }
};

// out = a b. The depth runs along the lines of a, or across them; the same for b.
template <class T>
struct Product {
  Factor<T> a, b;
  int depth;
  Result<T> out;
  Target sums;         // of the lines of a across the depth, one for each row of the result; null: not wanted
  int slice_bits = 0;  // 2^slice_bits blocks of a cluster share the depth of a tile

  __host__ __device__ int column_tiles() const { return (out.columns + kTile - 1) / kTile; }
  __host__ __device__ int tiles() const { return (out.rows + kTile - 1) / kTile * column_tiles(); }
  __host__ __device__ int chunks() const { return (depth + Chunk<T>::kDepth - 1) / Chunk<T>::kDepth; }
  // Of slice `slice`, which has every 2^slice_bits-th; the first has the most.
  __host__ __device__ int chunks_of(int slice) const {
    return (chunks() - slice + (1 << slice_bits) - 1) >> slice_bits;
  }
};

// Starts to copy kLines x kWidth elements, from (line, first) on, to lines of kStep; zeros where the factor ends.
template <int kWarps, int kLines, int kWidth, int kStep, int kUnit, class T>
__device__ void copy_units(const Factor<T>& factor, int line, int first, T* to) {
  constexpr int kUnits = kWidth / kUnit;
  constexpr int kLinesAtOnce = 32 * kWarps / kUnits;
  static_assert(kLinesAtOnce >= 1 && kLines % kLinesAtOnce == 0);
  constexpr bool kAsync = kUnit * sizeof(T) >= 4;
  const int row = static_cast<int>(threadIdx.x) / kUnits;
  const int column = static_cast<int>(threadIdx.x) % kUnits * kUnit;
  const int lines = first + column < factor.width ? factor.lines - line - row : 0;  // from this thread's first on
  const T* from = factor.data + static_cast<int64_t>(line + row) * factor.width + first + column;
  to += row * kStep + column;
#pragma unroll(kAsync ? 1 : 4)
  for (int i = 0; i < kLines; i += kLinesAtOnce) {
    const bool inside = i < lines;
    if constexpr (kAsync) {
      copy_async<kUnit * sizeof(T)>(to, inside ? from : factor.data, !inside);
    } else {
      *to = inside ? *from : T{0};
    }
    from += static_cast<int64_t>(kLinesAtOnce) * factor.width;
    to += kLinesAtOnce * kStep;
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

// 16 bytes of shared memory in one access.
__device__ inline float4 four_at(const float* address) { return *reinterpret_cast<const float4*>(address); }
__device__ inline void put_four(float* address, float a, float b, float c, float d) {
  *reinterpret_cast<float4*>(address) = {a, b, c, d};
}

// The sums of a warp: (32 x 32), spread over its lanes. kAlongA, kAlongB: how the depth runs in the factors' chunks.
template <class T, bool kAlongA, bool kAlongB>
struct Sums;

template <bool kAlongA, bool kAlongB>
struct Sums<bfloat16, kAlongA, kAlongB> {
  float value[2][4][4] = {};  // of 16 rows, 8 columns each

  // Adds the products of the depth from k to k + kDepth.
  template <int kDepth>
  __device__ void add(const bfloat16* a_tile, const bfloat16* b_tile, int k) {
#pragma unroll 2
    for (int step = 0; step < kDepth; step += 16) {
      std::uint32_t a[2][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        load_a(a[i], a_tile, 16 * i, k + step);
        load_b(b[i], b_tile, 16 * i, k + step);
      }
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          multiply_add(value[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        }
      }
    }
  }

  // Writes them to shared memory, lines of kSumLine.
  __device__ void put(float* tile) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = 16 * m + lane / 4 + e / 2 * 8;
          tile[row * kSumLine + 8 * n + 2 * (lane % 4) + e % 2] = value[m][n][e];
        }
      }
    }
  }

 private:
  // Fragments of 16 rows x 16 of the depth.
  static __device__ void load_a(std::uint32_t (&a)[4], const bfloat16* tile, int row, int k) {
    using C = Chunk<bfloat16>;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (kAlongA) {
      load_matrices(a, tile + (row + lane % 16) * C::kLongLine + k + lane / 16 * 8);
    } else {
      load_transposed(a, tile + (k + lane % 8 + lane / 16 * 8) * C::kShortLine + row + lane / 8 % 2 * 8);
    }
  }
  // Two fragments, of 16 columns together.
  static __device__ void load_b(std::uint32_t (&b)[4], const bfloat16* tile, int column, int k) {
    using C = Chunk<bfloat16>;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (kAlongB) {
      load_matrices(b, tile + (column + lane % 8 + lane / 16 * 8) * C::kLongLine + k + lane / 8 % 2 * 8);
    } else {
      load_transposed(b, tile + (k + lane % 16) * C::kShortLine + column + lane / 16 * 8);
    }
  }
};

// A lane has 4 rows and 8 columns. They are neighbours where the depth runs across the lines of the chunk, so that they
// are read by 16 bytes there as well, and far apart where it runs along: then four of the depth are read at once.
template <bool kAlongA, bool kAlongB>
struct Sums<float, kAlongA, kAlongB> {
  float value[4][8] = {};

  template <int kDepth>
  __device__ void add(const float* a_tile, const float* b_tile, int k) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 2
    for (int step = 0; step < kDepth; step += 4) {
      float a[4][4], b[4][8];
      load<kAlongA>(a, a_tile, lane / 4, k + step);
      load<kAlongB>(b, b_tile, lane % 4, k + step);
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

  __device__ void put(float* tile) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float* const line = tile + place<kAlongA, 4>(lane / 4, i) * kSumLine;
      if constexpr (kAlongB) {
#pragma unroll
        for (int j = 0; j < 8; ++j) line[place<kAlongB, 8>(lane % 4, j)] = value[i][j];
      } else {
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
          put_four(line + place<kAlongB, 8>(lane % 4, j), value[i][j], value[i][j + 1], value[i][j + 2],
                   value[i][j + 3]);
        }
      }
    }
  }

 private:
  // Which of the tile's 32 rows or columns is the i-th of the kCount that part `part` has.
  template <bool kAlong, int kCount>
  static __device__ int place(int part, int i) {
    return kAlong ? part + kTile / kCount * i : kCount * part + i;
  }

  // The part's elements of the tile, at four places of the depth from k on.
  template <bool kAlong, int kCount>
  static __device__ void load(float (&v)[4][kCount], const float* tile, int part, int k) {
    using C = Chunk<float>;
    if constexpr (kAlong) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float4 four = four_at(tile + place<kAlong, kCount>(part, i) * C::kLongLine + k);
        v[0][i] = four.x;
        v[1][i] = four.y;
        v[2][i] = four.z;
        v[3][i] = four.w;
      }
    } else {
#pragma unroll
      for (int d = 0; d < 4; ++d) {
#pragma unroll
        for (int i = 0; i < kCount; i += 4) {
          const float4 four = four_at(tile + (k + d) * C::kShortLine + place<kAlong, kCount>(part, i));
          v[d][i] = four.x;
          v[d][i + 1] = four.y;
          v[d][i + 2] = four.z;
          v[d][i + 3] = four.w;
        }
      }
    }
  }
};

// What slices send each other: their sums of the rows that the receiver adds up, then those of lines.
using SliceMail = Mailbox<kTile * kTile + kMostSlices * kTile>;

// What the block with this number has to do of a product, from the kernel's first instruction on. kSliced: whether its
// tiles' depths are shared in clusters. kOldB: b was there before the kernel before began, so that the first chunks of
// it are asked for while that one still runs.
template <int kWarps, int kStages, bool kSliced, bool kAlongA, bool kAlongB, bool kOldB, class T>
__device__ void compute_tile(const Product<T>& p, int block) {
  using C = Chunk<T>;
  constexpr int kWarpDepth = C::kDepth / kWarps;
  auto& mail = *dynamic_shared<SliceMail>();  // where it is sliced
  auto* const memory = reinterpret_cast<T*>(dynamic_shared<unsigned char>() + (kSliced ? sizeof(SliceMail) : 0));
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int slice_bits = kSliced ? p.slice_bits : 0;
  const int slices = 1 << slice_bits;
  const int tile = block >> slice_bits;
  const int slice = block & (slices - 1);
  if (tile >= p.tiles()) return;
  const int tile_row = tile / p.column_tiles();
  const int tile_column = tile - tile_row * p.column_tiles();
  const int chunks = p.chunks_of(slice);
  const bool sums_lines = !kAlongA && p.sums.data != nullptr && tile_column == 0;
  if (slices > 1) mail.open();

  Sums<T, kAlongA, kAlongB> sums;
  float line_sum = 0;
  const int k = warp * kWarpDepth;
  const int ahead = kOldB ? min(chunks, kStages) : 0;
#pragma unroll 1
  for (int turn = -ahead; turn < chunks + kStages; ++turn) {
    const int next = turn < 0 ? turn + ahead : turn;
    T* const a_part = memory + next % kStages * 2 * C::kElements;
    T* const b_part = a_part + C::kElements;
    const int chunk = slice + (next << slice_bits);
    if (turn == 0) begin_kernel();
    if (turn >= kStages) {  // the chunk whose copies were started so many before
      wait_for_copies<kStages - 1>();
      __syncthreads();
      if ((chunk - (kStages << slice_bits)) * C::kDepth + k < p.depth) {
        sums.template add<kWarpDepth>(a_part, b_part, k);
        if (sums_lines) {
#pragma unroll 8
          for (int d = 0; d < kWarpDepth; ++d) line_sum += to_float(a_part[(k + d) * C::kShortLine + lane]);
        }
      }
      __syncthreads();  // the stage is free again
    }
    if (turn >= 0 && turn < chunks) copy_chunk<kWarps, kAlongA>(p.a, tile_row, chunk, a_part);
    if (turn < 0 || (turn >= ahead && turn < chunks)) copy_chunk<kWarps, kAlongB>(p.b, tile_column, chunk, b_part);
    if (turn >= 0) commit_copies();
  }

  // The warps' sums, then those of the lines.
  auto* const parts = reinterpret_cast<float*>(memory);
  float* const line_parts = parts + kWarps * kTile * kSumLine;
  sums.put(parts + warp * kTile * kSumLine);
  line_parts[warp * kTile + lane] = line_sum;
  __syncthreads();

  int row = thread / 4;
  const int column = thread % 4 * 8;
  bool has_row = row < kTile;
  Floats<8> values{};
  Floats<1> line{};
  if (has_row) {
#pragma unroll
    for (int w = 0; w < kWarps; ++w) values += load<8>(parts + (w * kTile + row) * kSumLine + column);
  }
  if (sums_lines && thread < kTile) {
#pragma unroll
    for (int w = 0; w < kWarps; ++w) line[0] += line_parts[w * kTile + thread];
  }
  if (slices > 1) {
    // Each block adds up the slices' sums of its share of the rows; the first those of the lines.
    const int share = kTile >> slice_bits;
    const auto place = [&](int of_slice, int row) { return (of_slice * share + row) * kTile + column; };
    const auto line_place = [&](int of_slice) { return kTile * kTile + of_slice * kTile + thread; };
    mail.wait_for_others();
    if (has_row) mail.send(row / share, place(slice, row % share), values);
    if (sums_lines && thread < kTile) mail.send(0, line_place(slice), line);
    mail.wait(sizeof(float) * (kTile * kTile + (sums_lines && slice == 0 ? slices * kTile : 0)));
    has_row = row < share;
    values = {};
    line = {};
    for (int other = 0; other < slices; ++other) {
      if (has_row) values += load<8>(mail.content + place(other, row));
      if (sums_lines && slice == 0 && thread < kTile) line[0] += mail.content[line_place(other)];
    }
    row += slice * share;
  }
  if (has_row && tile_row * kTile + row < p.out.rows && tile_column * kTile + column < p.out.columns) {
    p.out.put(tile_row * kTile + row, tile_column * kTile + column, values);
  }
  if (sums_lines && slice == 0 && thread < kTile && tile_row * kTile + thread < p.out.rows) {
    const int64_t at = tile_row * kTile + thread;
    if (p.sums.accumulate) line[0] += p.sums.template read<1>(at, 1, false)[0];
    p.sums.write(at, line, 1, false);
  }
}

}  // namespace lockstep::kernels::cuda
