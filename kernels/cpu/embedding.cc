#include "kernels/embedding.h"

#include <stdexcept>
#include <string>

#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {

void cpu::embedding_forward(const ExecContext& exec, ConstView table, ConstView indices, View y) {
  const std::int64_t rows = table.shape[0];
  const std::int64_t columns = table.shape[1];
  const std::int32_t* index = indices.as<std::int32_t>();
  for (std::int64_t n = 0; n < indices.numel(); ++n) {
    if (index[n] < 0 || index[n] >= rows) {
      throw std::invalid_argument("embedding: expected indices in [0, " + std::to_string(rows) + "), got " +
                                  std::to_string(index[n]) + " at position " + std::to_string(n));
    }
  }
  with_float_type(table.dtype, [&]<class T>(T) {
    const T* source = table.as<T>();
    T* target = y.as<T>();
    const std::int64_t grain = kElementGrain / std::max<std::int64_t>(columns, 1) + 1;
    parallel_for(exec, indices.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        std::copy_n(source + index[n] * columns, columns, target + n * columns);
      }
    });
  });
}

void cpu::embedding_backward(const ExecContext& exec, ConstView dy, ConstView indices, GradView dtable) {
  if (!dtable) return;
  const std::int64_t columns = dtable.view.shape[1];
  const std::int32_t* index = indices.as<std::int32_t>();
  with_float_type(dy.dtype, [&]<class T>(T) {
    const T* grad = dy.as<T>();
    T* target = dtable.view.as<T>();
    if (!dtable.accumulate) {
      parallel_for(exec, dtable.view.numel(), 4 * kElementGrain,
                   [&](std::int64_t begin, std::int64_t end) { std::fill(target + begin, target + end, T(0)); });
    }
    // Threads split the columns, not the indices: an index that occurs twice is added by one thread, in order.
    const std::int64_t grain = kElementGrain / std::max<std::int64_t>(indices.numel(), 1) + 16;
    parallel_for(exec, columns, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = 0; n < indices.numel(); ++n) {
        T* row = target + index[n] * columns;
        const T* grad_row = grad + n * columns;
#pragma omp simd
        for (std::int64_t c = begin; c < end; ++c) row[c] += grad_row[c];
      }
    });
  });
}

}  // namespace lockstep::kernels
