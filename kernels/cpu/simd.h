// SIMD vectors of the widest kind that the target has, by the compiler's vector extension: +, * and so on work on them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace lockstep::kernels::cpu {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

namespace detail {
template <class T, int kBytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(kBytes)));  // NOLINT: `using` cannot carry the attribute in gcc 12
};
}  // namespace detail

template <class T, int kBytes = kVectorBytes>
using Vector = typename detail::VectorOf<T, kBytes>::type;

template <class V>
using Element = std::remove_cvref_t<decltype(std::declval<V&>()[0])>;

template <class V>
inline constexpr int kLanes = static_cast<int>(sizeof(V) / sizeof(Element<V>));

template <class V>
inline V load(const Element<V>* from) {
  V v;
  std::memcpy(&v, from, sizeof(V));
  return v;
}

template <class V>
inline void store(Element<V>* to, V v) {
  std::memcpy(to, &v, sizeof(V));
}

// Copies `count` < 2 * kBlock elements in pieces of kBlock, kBlock / 2 ... 1: much faster than a loop where count is
// the same call after call.
template <int kBlock, class T>
inline void copy_few(T* to, const T* from, std::int64_t count) {
  if (count & kBlock) {
    std::memcpy(to, from, kBlock * sizeof(T));
    to += kBlock;
    from += kBlock;
  }
  if constexpr (kBlock > 1) copy_few<kBlock / 2>(to, from, count);
}

// Stores the first `count` lanes, 0 < count <= lanes.
template <class V>
inline void store_first(Element<V>* to, V v, std::int64_t count) {
  copy_few<kLanes<V>>(to, reinterpret_cast<const Element<V>*>(&v), count);
}

namespace detail {

// Swaps the lanes of `a` that have bit kStep set with the lanes of `b` that have not.
template <int kStep, class V, int... kLane>
inline void exchange(V& a, V& b, std::integer_sequence<int, kLane...>) {
  using Int = std::conditional_t<sizeof(Element<V>) == 4, std::int32_t, std::int64_t>;
  constexpr int n = sizeof...(kLane);
  const V low = __builtin_shuffle(a, b, Vector<Int, sizeof(V)>{((kLane & kStep) ? n + kLane - kStep : kLane)...});
  const V high = __builtin_shuffle(a, b, Vector<Int, sizeof(V)>{((kLane & kStep) ? n + kLane : kLane + kStep)...});
  a = low;
  b = high;
}

template <int kStep, class V>
inline void transpose_from(V (&rows)[kLanes<V>]) {
  if constexpr (kStep < kLanes<V>) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes<V>; ++i) {
      if ((i & kStep) == 0) exchange<kStep>(rows[i], rows[i + kStep], std::make_integer_sequence<int, kLanes<V>>{});
    }
    transpose_from<2 * kStep>(rows);
  }
}

}  // namespace detail

// Transposes a square block in registers, swapping off-diagonal blocks of 1, 2, 4 ... lanes.
template <class V>
inline void transpose(V (&rows)[kLanes<V>]) {
  detail::transpose_from<1>(rows);
}

}  // namespace lockstep::kernels::cpu
