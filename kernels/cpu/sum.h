// Sums whose bits depend neither on the number of threads nor on where the data lies: fixed lanes within a block, fixed
// blocks within the range, combined in order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/parallel.h"

namespace lockstep::kernels::cpu {

// Sum of f(i) for i in [begin, end), as 64 interleaved partial sums of type T.
template <class T, class F>
T lane_sum(std::int64_t begin, std::int64_t end, F f) {
  constexpr std::int64_t kWidth = 64;
  T lanes[kWidth] = {};
  std::int64_t i = begin;
  for (; i + kWidth <= end; i += kWidth) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kWidth; ++lane) lanes[lane] += f(i + lane);
  }
  for (std::int64_t lane = 0; i < end; ++i, ++lane) lanes[lane] += f(i);
  for (std::int64_t half = kWidth / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// Sum of body(begin, end) over the blocks of `block` elements that [0, n) falls into. A thread takes at least `grain`
// blocks. The partial sums take the workspace.
template <class Body>
double blocked_sum(const ExecContext& exec, std::int64_t n, std::int64_t block, std::int64_t grain, Body&& body) {
  const std::int64_t blocks = (n + block - 1) / block;
  auto* partials = static_cast<double*>(exec.workspace->reserve(static_cast<std::size_t>(blocks) * sizeof(double)));
  parallel_for(exec, blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      partials[b] = static_cast<double>(body(b * block, std::min(n, (b + 1) * block)));
    }
  });
  double sum = 0;
  for (std::int64_t b = 0; b < blocks; ++b) sum += partials[b];
  return sum;
}

}  // namespace lockstep::kernels::cpu
