#include "framework/distributed/reduce.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/bfloat16.h"

namespace lockstep {
namespace {

// What an element is while it is being reduced.
template <class T>
struct Accumulator {
  using Type = T;
  static Type load(T value) { return value; }
  static T store(Type value) { return value; }
};

template <>
struct Accumulator<bfloat16> {
  using Type = float;
  static float load(bfloat16 value) { return float_of(value); }
  static bfloat16 store(float value) { return bfloat16_of(value); }
};

// Integers wrap: signed overflow would be undefined.
template <class A>
A add(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    using Unsigned = std::make_unsigned_t<A>;
    return static_cast<A>(static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
  } else {
    return a + b;
  }
}

template <class T, class Combine>
void reduce_as(std::span<const void* const> inputs, void* out, std::int64_t count, Combine combine) {
  using Accumulate = Accumulator<T>;
  // A block of accumulators stays in the first-level cache while the inputs stream past it.
  constexpr std::int64_t kBlock = 1024;
  std::array<typename Accumulate::Type, kBlock> block;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const auto length = static_cast<std::size_t>(std::min(kBlock, count - begin));
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      const T* in = static_cast<const T*>(inputs[rank]) + begin;
      if (rank == 0) {
        for (std::size_t i = 0; i < length; ++i) block[i] = Accumulate::load(in[i]);
      } else {
        for (std::size_t i = 0; i < length; ++i) block[i] = combine(block[i], Accumulate::load(in[i]));
      }
    }
    T* to = static_cast<T*>(out) + begin;
    for (std::size_t i = 0; i < length; ++i) to[i] = Accumulate::store(block[i]);
  }
}

template <class T>
void reduce_as(ReduceOp op, std::span<const void* const> inputs, void* out, std::int64_t count) {
  using A = typename Accumulator<T>::Type;
  switch (op) {
    case ReduceOp::sum:
      return reduce_as<T>(inputs, out, count, [](A a, A b) { return add(a, b); });
    case ReduceOp::max:
      return reduce_as<T>(inputs, out, count, [](A a, A b) { return b > a ? b : a; });
    case ReduceOp::min:
      return reduce_as<T>(inputs, out, count, [](A a, A b) { return b < a ? b : a; });
  }
}

}  // namespace

void reduce_elements(DType dtype, ReduceOp op, std::span<const void* const> inputs, void* out, std::int64_t count) {
  switch (dtype) {
    case DType::f32:
      return reduce_as<float>(op, inputs, out, count);
    case DType::bf16:
      return reduce_as<bfloat16>(op, inputs, out, count);
    case DType::f64:
      return reduce_as<double>(op, inputs, out, count);
    case DType::i32:
      return reduce_as<std::int32_t>(op, inputs, out, count);
    case DType::u8:
      return reduce_as<std::uint8_t>(op, inputs, out, count);
  }
}

}  // namespace lockstep
