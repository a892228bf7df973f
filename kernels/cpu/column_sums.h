// Sums over the rows of a matrix: the gradient of a bias.
#pragma once

#include "kernels/cpu/parallel.h"

namespace lockstep::kernels::cpu {

// target (+)= column sums of a (rows x columns, row-major). The same bits for any number of threads.
template <class T>
void column_sums(const ExecContext& exec, const T* a, std::int64_t rows, std::int64_t columns, const GradView& target) {
  // `fold` rows count as one long row, so that the inner loop is long where there are few columns; blocks of rows are
  // summed on their own, by one thread each.
  const std::int64_t fold = std::clamp<std::int64_t>(256 / std::max<std::int64_t>(columns, 1), 1, 64);
  const std::int64_t wide = fold * columns;
  const std::int64_t block = fold * 64;
  const std::int64_t blocks = (rows + block - 1) / block;
  T* const sums = static_cast<T*>(exec.workspace->reserve(static_cast<std::size_t>(blocks * wide) * sizeof(T)));
  parallel_for(exec, blocks, std::max<std::int64_t>(4 * kElementGrain / std::max<std::int64_t>(block * columns, 1), 1),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t b = begin; b < end; ++b) {
                   T* const out = sums + b * wide;
                   std::fill_n(out, wide, T{0});
                   const T* const last = a + std::min(rows, (b + 1) * block) * columns;
                   for (const T* row = a + b * block * columns; row < last; row += wide) {
                     const std::int64_t count = std::min<std::int64_t>(wide, last - row);
#pragma omp simd
                     for (std::int64_t j = 0; j < count; ++j) out[j] += row[j];
                   }
                 }
               });
  T* const out = target.view.as<T>();
  if (!target.accumulate) std::fill_n(out, columns, T{0});
  for (std::int64_t row = 0; row < blocks * fold; ++row) {
    for (std::int64_t j = 0; j < columns; ++j) out[j] += sums[row * columns + j];
  }
}

}  // namespace lockstep::kernels::cpu
