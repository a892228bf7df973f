// SIMD vectors of the widest kind that the target has, by the compiler's vector extension: +, * and so on work on them.
#pragma once

#ifdef __AVX512VL__
#include <immintrin.h>
#endif

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

// Half as wide: wastes fewer lanes where rows are short.
template <class T>
using HalfVector = Vector<T, std::max(kVectorBytes / 2, 16)>;

template <class V>
using Element = std::remove_cvref_t<decltype(std::declval<V&>()[0])>;

template <class V>
inline constexpr int kLanes = static_cast<int>(sizeof(V) / sizeof(Element<V>));

// Calls body(V{}) with the vector type that fits rows of `columns` elements better.
template <class T, class Body>
void with_vector(std::int64_t columns, Body&& body) {
  if constexpr (std::is_same_v<T, float>) {
    if (columns <= kLanes<HalfVector<T>>) return body(HalfVector<T>{});
  }
  body(Vector<T>{});
}

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

#ifdef __AVX512VL__

// The first `count` lanes, 0 < count <= lanes; the others are zero.
template <class V>
inline V load_first(const Element<V>* from, std::int64_t count) {
  const std::uint32_t mask = (std::uint32_t{1} << count) - 1;
  if constexpr (std::is_same_v<V, Vector<float, 64>>) {
    return V(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from));
  } else if constexpr (std::is_same_v<V, Vector<float, 32>>) {
    return V(_mm256_maskz_loadu_ps(static_cast<__mmask8>(mask), from));
  } else {
    static_assert(std::is_same_v<V, Vector<double, 64>>);
    return V(_mm512_maskz_loadu_pd(static_cast<__mmask8>(mask), from));
  }
}

// Stores the first `count` lanes, 0 < count <= lanes.
template <class V>
inline void store_first(Element<V>* to, V v, std::int64_t count) {
  const std::uint32_t mask = (std::uint32_t{1} << count) - 1;
  if constexpr (std::is_same_v<V, Vector<float, 64>>) {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>(mask), v);
  } else if constexpr (std::is_same_v<V, Vector<float, 32>>) {
    _mm256_mask_storeu_ps(to, static_cast<__mmask8>(mask), v);
  } else {
    static_assert(std::is_same_v<V, Vector<double, 64>>);
    _mm512_mask_storeu_pd(to, static_cast<__mmask8>(mask), v);
  }
}

#else

template <class V>
inline V load_first(const Element<V>* from, std::int64_t count) {
  if (count == kLanes<V>) return load<V>(from);
  V v{};
  for (std::int64_t lane = 0; lane < count; ++lane) v[lane] = from[lane];
  return v;
}

template <class V>
inline void store_first(Element<V>* to, V v, std::int64_t count) {
  if (count == kLanes<V>) return store(to, v);
  for (std::int64_t lane = 0; lane < count; ++lane) to[lane] = v[lane];
}

#endif

namespace detail {

// Swaps the lanes of `a` that have bit kStep set with the lanes of `b` that have not.
template <int kStep, class V, int... kLane>
inline void exchange(V& a, V& b, std::integer_sequence<int, kLane...>) {
  constexpr int n = sizeof...(kLane);
  const V low = __builtin_shufflevector(a, b, ((kLane & kStep) ? n + kLane - kStep : kLane)...);
  const V high = __builtin_shufflevector(a, b, ((kLane & kStep) ? n + kLane : kLane + kStep)...);
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
