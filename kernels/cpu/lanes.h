// Blocks of 64 elements for the functions that Eigen vectorises (exp, erf, square root). Every element takes the vector
// code, the last incomplete block too, so that a result does not depend on where the threads split the work, on the
// alignment, or on the scalar library's idea of exp.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/parallel.h"

namespace lockstep::kernels::cpu {

inline constexpr std::int64_t kLaneCount = 64;

template <class T>
using Lanes = Eigen::Array<T, kLaneCount, 1>;

// count <= kLaneCount elements; zeros beyond them.
template <class T>
Lanes<T> load_lanes(const T* source, std::int64_t count) {
  if (count == kLaneCount) return Eigen::Map<const Lanes<T>>(source);
  Lanes<T> lanes = Lanes<T>::Zero();
  std::copy_n(source, count, lanes.data());
  return lanes;
}

template <bool kAccumulate, class T>
void store_lanes(T* target, std::int64_t count, const Lanes<T>& lanes) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) write<kAccumulate>(target[i], lanes[i]);
}

// y = f(begin, count) or y += f(begin, count), block by block; f returns Lanes.
template <class T, class F>
void map_lanes(const ExecContext& exec, GradView y, F f) {
  T* out = y.view.as<T>();
  const std::int64_t n = y.view.numel();
  with_write_mode(y, [&](auto accumulate) {
    parallel_for(exec, (n + kLaneCount - 1) / kLaneCount, kElementGrain / (8 * kLaneCount),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin * kLaneCount; i < std::min(n, end * kLaneCount); i += kLaneCount) {
                     const std::int64_t count = std::min(kLaneCount, n - i);
                     store_lanes<accumulate>(out + i, count, f(i, count));
                   }
                 });
  });
}

}  // namespace lockstep::kernels::cpu
