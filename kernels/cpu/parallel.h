// Loops of the CPU kernels: split over the context's threads, and instantiated for the element type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels::cpu {

// Splits [0, n) into one contiguous range per thread and calls body(begin, end) for each. Fewer threads are used where
// a range would be smaller than `grain`: starting a team costs some microseconds.
template <class Body>
void parallel_for(const ExecContext& exec, std::int64_t n, std::int64_t grain, Body&& body) {
  const std::int64_t parts = std::clamp<std::int64_t>(n / std::max<std::int64_t>(grain, 1), 1, exec.threads);
  if (parts == 1) {
    if (n > 0) body(std::int64_t{0}, n);
    return;
  }
#pragma omp parallel for num_threads(static_cast <int>(parts)) schedule(static, 1)
  for (std::int64_t part = 0; part < parts; ++part) body(n * part / parts, n * (part + 1) / parts);
}

// Elements of simple arithmetic that outweigh the start of a team.
inline constexpr std::int64_t kElementGrain = 16384;

// Calls body(T{}) with the view's floating-point type.
template <class Body>
void with_float_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::f64:
      return body(double{});
    default:
      detail::wrong_dtype(DType::f32, dtype);
  }
}

// Stores a gradient value, or adds it.
template <bool kAccumulate, class T>
inline void write(T& target, T value) {
  if constexpr (kAccumulate) {
    target += value;
  } else {
    target = value;
  }
}

// Calls body(std::bool_constant<accumulate>): the choice is made once a kernel, not once an element.
template <class Body>
void with_write_mode(const GradView& target, Body&& body) {
  if (target.accumulate) {
    body(std::true_type{});
  } else {
    body(std::false_type{});
  }
}

}  // namespace lockstep::kernels::cpu
