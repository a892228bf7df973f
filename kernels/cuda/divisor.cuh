// Division by a number that the host knows: two instructions where a division of integers takes twenty.
#pragma once

#include <cstdint>

namespace lockstep::kernels::cuda {

// a / Divisor(b) is the quotient for a >= 0 and b > 0 whose product, and b squared, stay below 2^32. (a + 1) times the
// reciprocal of b, rounded down, misses it by less than what lifts it to the next.
class Divisor {
 public:
  explicit Divisor(int value)
      : value_(value), reciprocal_(value > 0 ? UINT32_MAX / static_cast<std::uint32_t>(value) : 0) {}

  __host__ __device__ operator int() const { return value_; }  // NOLINT(google-explicit-constructor)
  __host__ __device__ friend int operator/(int a, const Divisor& b) {
    const std::uint32_t next = static_cast<std::uint32_t>(a) + 1;
#ifdef __CUDA_ARCH__
    return static_cast<int>(__umulhi(next, b.reciprocal_));
#else
    return static_cast<int>((std::uint64_t{next} * b.reciprocal_) >> 32);
#endif
  }

 private:
  int value_;
  std::uint32_t reciprocal_;
};

}  // namespace lockstep::kernels::cuda
