// Matrix multiplication: register tiles over a packed right-hand side.
//
// A tile holds rows x vectors of the result in registers. Each step of k broadcasts one element of `a` per row and
// multiplies it by the vectors of one row of `b`. With 24 accumulators that runs at the peak of the machine as long as
// `b` comes from the nearest caches in unit stride, which is what packing it into panels is for; `a` is read in place.
#pragma once

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd.h"

namespace lockstep::kernels::cpu {

// A tile must leave registers for one row of `b`: 6 x 4 of 32 registers, 6 x 2 of 16.
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = kVectorBytes == 64 ? 4 : 2;

template <class V, int kRows, int kVectors>
struct Tile {
  using T = Element<V>;
  V sum[kRows][kVectors];

  Tile() : sum{} {}
  // Every row starts as `row`.
  explicit Tile(const T* row) {
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[m][v] = load<V>(row + v * kLanes<V>);
    }
  }

  // sum[m] += a[m * a_row + k * a_step] * b[k * b_step ...] for k in [0, count).
  [[gnu::always_inline]] void multiply_add(const T* a, std::int64_t a_row, std::int64_t a_step, const T* b,
                                           std::int64_t b_step, std::int64_t count) {
    for (std::int64_t k = 0; k < count; ++k) {
      V row[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) row[v] = load<V>(b + k * b_step + v * kLanes<V>);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        const T scale = a[m * a_row + k * a_step];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sum[m][v] += scale * row[v];
      }
    }
  }

  // Writes the first `columns` columns to rows of c, or adds them. Only the last vector may be partly outside.
  template <bool kAccumulate>
  [[gnu::always_inline]] void write(T* c, std::int64_t c_row, std::int64_t columns) const {
    constexpr std::int64_t whole = (kVectors - 1) * kLanes<V>;
    const std::int64_t rest = columns - whole;
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      T* const out = c + m * c_row;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors - 1; ++v) put<kAccumulate>(out + v * kLanes<V>, sum[m][v]);
      if (rest == kLanes<V>) {
        put<kAccumulate>(out + whole, sum[m][kVectors - 1]);
      } else {
        put_first<kAccumulate>(out + whole, sum[m][kVectors - 1], rest);
      }
    }
  }

 private:
  template <bool kAccumulate>
  static void put(T* out, V v) {
    store(out, kAccumulate ? load<V>(out) + v : v);
  }
  template <bool kAccumulate>
  static void put_first(T* out, V v, std::int64_t count) {
    if constexpr (kAccumulate) {
      for (std::int64_t lane = 0; lane < count; ++lane) out[lane] += v[lane];
    } else {
      store_first(out, v, count);
    }
  }
};

// Calls body(std::integral_constant<int, value>) for a value in [1, kMax].
template <int kMax, class Body>
[[gnu::always_inline]] inline void with_constant(std::int64_t value, Body&& body) {
  if constexpr (kMax > 1) {
    if (value < kMax) return with_constant<kMax - 1>(value, body);
  }
  body(std::integral_constant<int, kMax>{});
}

// Splits n rows into tiles of nearly equal height: body(first row, rows as a constant).
template <class Body>
void for_tiles(std::int64_t n, Body&& body) {
  const std::int64_t tiles = (n + kTileRows - 1) / kTileRows;
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t first = n * i / tiles;
    with_constant<kTileRows>(n * (i + 1) / tiles - first, [&](auto rows) { body(first, rows); });
  }
}

// Multiplications that outweigh the start of a team of threads.
inline constexpr std::int64_t kTeamMultiplications = 1 << 18;

// A matrix in memory: element (i, j) is at data[i * row + j * column]; one of the steps is 1.
template <class T>
struct Matrix {
  const T* data;
  std::int64_t row;
  std::int64_t column;
};

// Packs `b` (k_count x columns) as rows of `vectors` whole vectors, filled up with zeros.
template <class V>
void pack(const Matrix<Element<V>>& b, std::int64_t k_count, std::int64_t columns, std::int64_t vectors,
          Element<V>* packed) {
  using T = Element<V>;
  constexpr std::int64_t lanes = kLanes<V>;
  const std::int64_t width = vectors * lanes;
  if (b.column == 1) {
    for (std::int64_t k = 0; k < k_count; ++k) {
      T* to = packed + k * width;
      std::copy_n(b.data + k * b.row, columns, to);
      std::fill(to + columns, to + width, T{0});
    }
    return;
  }
  for (std::int64_t j = 0; j < width; j += lanes) {
    const std::int64_t live = std::clamp<std::int64_t>(columns - j, 0, lanes);
    const T* from = b.data + j * b.column;
    T* to = packed + j;
    std::int64_t k = 0;
    for (; k + lanes <= k_count; k += lanes) {
      V block[lanes];
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < lanes; ++i) block[i] = i < live ? load<V>(from + i * b.column + k) : V{};
      transpose(block);
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < lanes; ++i) store(to + (k + i) * width, block[i]);
    }
    for (; k < k_count; ++k) {
      for (std::int64_t i = 0; i < lanes; ++i) to[k * width + i] = i < live ? from[i * b.column + k] : T{0};
    }
  }
}

// c (rows x columns, row-major) = a b + bias, or c += a b where `accumulate`. a (rows x depth), b (depth x columns);
// bias (columns) may be null. Scratch comes from the workspace. The order of the sums does not depend on `threads`.
template <class T>
void gemm(const ExecContext& exec, std::int64_t rows, std::int64_t columns, std::int64_t depth, const Matrix<T>& a,
          const Matrix<T>& b, const T* bias, T* c, bool accumulate) {
  using V = Vector<T>;
  constexpr std::int64_t lanes = kLanes<V>;
  constexpr std::int64_t width = kTileVectors * lanes;
  constexpr std::int64_t max_block = 512;  // of depth: a panel of 128 KiB (f32) stays in the second-level cache
  const std::int64_t blocks = std::max<std::int64_t>((depth + max_block - 1) / max_block, 1);
  const std::int64_t block = std::max<std::int64_t>((depth + blocks - 1) / blocks, 1);

  // Threads share out columns in whole vectors, or rows where there are few columns.
  const std::int64_t column_vectors = (columns + lanes - 1) / lanes;
  const bool by_columns = column_vectors >= exec.threads;
  const std::int64_t items = by_columns ? column_vectors : rows;
  if (items == 0) return;
  const std::int64_t item_cost = std::max<std::int64_t>(rows * columns * depth / items, 1);
  const std::int64_t parts = std::clamp<std::int64_t>(items * item_cost / kTeamMultiplications, 1, std::min<std::int64_t>(exec.threads, items));
  const std::int64_t scratch = (block + 1) * width;
  T* const workspace = static_cast<T*>(exec.workspace->reserve(static_cast<std::size_t>(parts * scratch) * sizeof(T)));

  parallel_for(exec, parts, 1, [&](std::int64_t part, std::int64_t) {
    T* const initial = workspace + part * scratch;
    T* const panel = initial + width;
    const std::int64_t first = items * part / parts;
    const std::int64_t last = items * (part + 1) / parts;
    const std::int64_t row_begin = by_columns ? 0 : first;
    const std::int64_t row_end = by_columns ? rows : last;
    const std::int64_t column_begin = by_columns ? first * lanes : 0;
    const std::int64_t column_end = by_columns ? std::min(last * lanes, columns) : columns;
    for (std::int64_t j = column_begin; j < column_end; j += width) {
      const std::int64_t live = std::min(width, column_end - j);
      const std::int64_t vectors = (live + lanes - 1) / lanes;
      for (std::int64_t k = 0; k == 0 || k < depth; k += block) {
        const std::int64_t k_count = std::min(block, depth - k);
        std::fill_n(initial, width, T{0});
        if (bias != nullptr && k == 0) std::copy_n(bias + j, live, initial);
        pack<V>({b.data + k * b.row + j * b.column, b.row, b.column}, k_count, live, vectors, panel);
        const bool add = accumulate || k > 0;
        with_constant<kTileVectors>(vectors, [&](auto n_vectors) {
          for_tiles(row_end - row_begin, [&](std::int64_t i, auto tile_rows) {
            Tile<V, tile_rows, n_vectors> tile(initial);
            tile.multiply_add(a.data + (row_begin + i) * a.row + k * a.column, a.row, a.column, panel,
                              n_vectors * lanes, k_count);
            T* const out = c + (row_begin + i) * columns + j;
            if (add) {
              tile.template write<true>(out, columns, live);
            } else {
              tile.template write<false>(out, columns, live);
            }
          });
        });
      }
    }
  });
}

}  // namespace lockstep::kernels::cpu
