// Element types of the GPU: f32 and bf16 in memory, f32 in arithmetic, 16 bytes an access where the address allows it.
#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/tensor_view.h"

namespace lockstep::kernels::cuda {

// Calls body(T{}) with the view's floating-point type.
template <class Body>
void with_float_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::bf16:
      return body(bfloat16{});
    default:
      detail::wrong_dtype(DType::f32, dtype);
  }
}

// Elements of the smallest of the types that make 16 bytes.
template <class... T>
inline constexpr int kVector = 16 / std::min({sizeof(T)...});

// Where every address is a multiple of 16 bytes, whole vectors can be moved.
template <class... T>
bool aligned(const T*... address) {
  return ((reinterpret_cast<std::uintptr_t>(address) | ... | 0) % 16) == 0;
}

template <int N>
struct Floats {
  float value[N];
  __device__ float& operator[](int i) { return value[i]; }
  __device__ float operator[](int i) const { return value[i]; }
  __device__ Floats& operator+=(const Floats& added) {
#pragma unroll
    for (int i = 0; i < N; ++i) value[i] += added[i];
    return *this;
  }
};

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bfloat16 x) { return __uint_as_float(static_cast<std::uint32_t>(x.bits) << 16); }
__device__ inline float to_float(std::uint8_t x) { return static_cast<float>(x); }

// Rounds to nearest, ties to even.
template <class T>
__device__ T from_float(float x) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  } else {
    return x;
  }
}

// N neighbouring elements at an address that is a multiple of 16 bytes, or of their size where that is less.
template <int N, class T>
__device__ Floats<N> load(const T* address) {
  constexpr int kBytes = N * sizeof(T) < 16 ? N * sizeof(T) : 16;
  constexpr int kCount = kBytes / sizeof(T);
  struct alignas(kBytes) Pack {
    T value[kCount];
  };
  Floats<N> result;
#pragma unroll
  for (int i = 0; i < N; i += kCount) {
    const Pack pack = *reinterpret_cast<const Pack*>(address + i);
#pragma unroll
    for (int k = 0; k < kCount; ++k) result[i + k] = to_float(pack.value[k]);
  }
  return result;
}

// Two numbers as one word, the first in its lower half.
__device__ inline std::uint32_t bf16_pair(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.y)) << 16 | __bfloat16_as_ushort(pair.x);
}

// In one access. Spelled out, since nvcc takes a structure of as many bytes apart where the store stands in a branch,
// which costs several times as much.
__device__ inline void store_words(void* address, std::uint32_t a) { *static_cast<std::uint32_t*>(address) = a; }
__device__ inline void store_words(void* address, std::uint32_t a, std::uint32_t b) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(a), "r"(b) : "memory");
}
__device__ inline void store_words(void* address, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

template <int N, class T>
__device__ void store(T* address, const Floats<N>& values) {
  constexpr int kMost = 16 / sizeof(T);
  constexpr int kCount = N < kMost ? N : kMost;
  constexpr int kPerWord = 4 / sizeof(T);
  const auto word = [&](int i) {
    if constexpr (std::is_same_v<T, bfloat16>) {
      return bf16_pair(values[i], values[i + 1]);
    } else {
      return __float_as_uint(values[i]);
    }
  };
#pragma unroll
  for (int i = 0; i < N; i += kCount) {
    if constexpr (kCount < kPerWord) {
      address[i] = from_float<T>(values[i]);
    } else if constexpr (kCount == kPerWord) {
      store_words(address + i, word(i));
    } else if constexpr (kCount == 2 * kPerWord) {
      store_words(address + i, word(i), word(i + kPerWord));
    } else {
      store_words(address + i, word(i), word(i + kPerWord), word(i + 2 * kPerWord), word(i + 3 * kPerWord));
    }
  }
}

// The same for the last elements of a range, or for addresses that are not aligned: `count` elements, one by one. Those
// beyond read as 0.
template <int N, class T>
__device__ Floats<N> load_first(const T* address, int count) {
  Floats<N> result;
#pragma unroll
  for (int i = 0; i < N; ++i) result[i] = i < count ? to_float(address[i]) : 0.0F;
  return result;
}

template <int N, class T>
__device__ void store_first(T* address, const Floats<N>& values, int count) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i < count) address[i] = from_float<T>(values[i]);
  }
}

// Up to N elements: in whole vectors where `vectors` says that the address allows it.
template <int N, class T>
__device__ Floats<N> load(const T* address, int count, bool vectors) {
  return vectors && count >= N ? load<N>(address) : load_first<N>(address, count);
}

template <int N, class T>
__device__ void store(T* address, const Floats<N>& values, int count, bool vectors) {
  if (vectors && count >= N) {
    store(address, values);
  } else {
    store_first(address, values, count);
  }
}

// Writes a gradient, or adds it to what is there.
template <int N, class T>
__device__ void write(T* address, Floats<N> values, int count, bool vectors, bool accumulate) {
  if (accumulate) values += load<N>(address, count, vectors);
  store(address, values, count, vectors);
}

// A single number in device memory, f32 or bf16.
struct Scalar {
  void* address;
  DType dtype;

  explicit Scalar(const View& view) : address(view.data), dtype(view.dtype) {}
  explicit Scalar(const ConstView& view) : address(const_cast<void*>(view.data)), dtype(view.dtype) {}
  __device__ float read() const {
    return dtype == DType::f32 ? *static_cast<const float*>(address) : to_float(*static_cast<const bfloat16*>(address));
  }
  __device__ void write(float value) const {
    if (dtype == DType::f32) {
      *static_cast<float*>(address) = value;
    } else {
      *static_cast<bfloat16*>(address) = from_float<bfloat16>(value);
    }
  }
};

// a / b, by the much faster 32-bit division where it can be.
__device__ inline std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}

// Where a thread loads several values and then stores them: the compiler would store the first before it loads the
// last, and so wait for memory more than once.
__device__ inline void all_loads_begun() { asm volatile("" ::: "memory"); }

// put(i, get(i)) for i from first on in steps below end, the gets of kBatch at once: a loop that is only unrolled waits
// for each of the last ones by itself.
template <int kBatch, class Get, class Put>
__device__ void in_batches(int first, int end, int step, Get get, Put put) {
  for (int start = first; start < end; start += kBatch * step) {
    decltype(get(0)) values[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (start + k * step < end) values[k] = get(start + k * step);
    }
    all_loads_begun();
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (start + k * step < end) put(start + k * step, values[k]);
    }
  }
}

// Position of the calling thread in a one-dimensional grid, and the number of its threads.
__device__ inline std::int64_t thread_in_grid() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t threads_in_grid() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

}  // namespace lockstep::kernels::cuda
