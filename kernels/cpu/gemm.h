// Matrix multiplication by tiles (tile.h). The right-hand side is packed, panel by panel, into scratch memory that
// stays in the second-level cache; the left-hand side is read in place.
#pragma once

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tile.h"

namespace lockstep::kernels::cpu {

// Multiplications that outweigh the start of a team of threads.
inline constexpr std::int64_t kTeamMultiplications = 1 << 18;

// A matrix in memory: element (i, j) is at data[i * row + j * column]; one of the steps is 1.
template <class T>
struct Matrix {
  const T* data;
  std::int64_t row;
  std::int64_t column;
};

// Packs `b` (depth x columns) as rows of whole vectors, filled up with zeros.
template <class V, class T = Element<V>>
void pack(const Matrix<T>& b, std::int64_t depth, std::int64_t columns, T* packed) {
  constexpr std::int64_t lanes = kLanes<V>;
  const std::int64_t width = (columns + lanes - 1) / lanes * lanes;
  if (b.column == 1) {
    for (std::int64_t k = 0; k < depth; ++k) {
      T* const to = packed + k * width;
      std::copy_n(b.data + k * b.row, columns, to);
      std::fill(to + columns, to + width, T{0});
    }
    return;
  }
  for (std::int64_t j = 0; j < width; j += lanes) {
    const std::int64_t live = std::min(columns - j, lanes);
    const T* const from = b.data + j * b.column;
    T* const to = packed + j;
    std::int64_t k = 0;
    for (; k + lanes <= depth; k += lanes) {
      V block[lanes];
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < lanes; ++i) block[i] = i < live ? load<V>(from + i * b.column + k) : V{};
      transpose(block);
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < lanes; ++i) store(to + (k + i) * width, block[i]);
    }
    for (; k < depth; ++k) {
      for (std::int64_t i = 0; i < lanes; ++i) to[k * width + i] = i < live ? from[i * b.column + k] : T{0};
    }
  }
}

// c (rows x columns, row-major) = a b + bias, or c += a b + bias. a (rows x depth), b (depth x columns), bias (columns)
// or null. Takes the workspace. The bits do not depend on the number of threads.
template <class T>
void gemm(const ExecContext& exec, std::int64_t rows, std::int64_t columns, std::int64_t depth, const Matrix<T>& a,
          const Matrix<T>& b, const T* bias, T* c, bool accumulate) {
  using V = Vector<T>;
  constexpr std::int64_t lanes = kLanes<V>;
  constexpr std::int64_t width = kTileVectors * lanes;
  constexpr std::int64_t max_block = 512;  // rows of a panel: 128 KiB in f32
  const std::int64_t blocks = std::max<std::int64_t>((depth + max_block - 1) / max_block, 1);
  const std::int64_t block = std::max<std::int64_t>((depth + blocks - 1) / blocks, 1);

  // Threads share out the columns in whole vectors, or the rows where there are few columns.
  const std::int64_t vectors = (columns + lanes - 1) / lanes;
  const bool by_columns = vectors >= exec.threads;
  const std::int64_t items = by_columns ? vectors : rows;
  if (items == 0) return;
  const std::int64_t parts = std::clamp<std::int64_t>(rows * columns * depth / kTeamMultiplications, 1,
                                                      std::min<std::int64_t>(exec.threads, items));
  const std::int64_t scratch_size = (block + 1) * width;
  T* const workspace =
      static_cast<T*>(exec.workspace->reserve(static_cast<std::size_t>(parts * scratch_size) * sizeof(T)));

  parallel_for(exec, parts, 1, [&](std::int64_t part, std::int64_t) {
    T* const initial = workspace + part * scratch_size;
    T* const panel = initial + width;
    const std::int64_t first = items * part / parts;
    const std::int64_t last = items * (part + 1) / parts;
    const std::int64_t row_begin = by_columns ? 0 : first;
    const std::int64_t row_end = by_columns ? rows : last;
    const std::int64_t column_begin = by_columns ? first * lanes : 0;
    const std::int64_t column_end = by_columns ? std::min(last * lanes, columns) : columns;
    Product<T> product{.a_row = a.row, .a_step = a.column, .b = panel, .c_row = columns};
    for (std::int64_t j = column_begin; j < column_end; j += width) {
      product.columns = std::min(width, column_end - j);
      product.b_step = (product.columns + lanes - 1) / lanes * lanes;
      product.c = c + row_begin * columns + j;
      for (std::int64_t k = 0; k == 0 || k < depth; k += block) {
        product.a = a.data + row_begin * a.row + k * a.column;
        product.count = std::min(block, depth - k);
        product.accumulate = accumulate || k > 0;
        product.initial = nullptr;
        if (bias != nullptr && k == 0) {
          std::copy_n(bias + j, product.columns, initial);
          product.initial = initial;
        }
        pack<V>({b.data + k * b.row + j * b.column, b.row, b.column}, product.count, product.columns, panel);
        multiply<V>(product, row_end - row_begin);
      }
    }
  });
}

}  // namespace lockstep::kernels::cpu
