// Random bits as a function of a key and a counter: no state to carry, any order, the same bits on every platform.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

// SplitMix64's output function (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Output number `counter` of SplitMix64 seeded with `key`.
constexpr std::uint64_t random_bits(std::uint64_t key, std::uint64_t counter) {
  return mix_bits(key + (counter + 1) * 0x9e3779b97f4a7c15ULL);
}

// The key of one of many independent streams under a seed.
constexpr std::uint64_t stream_key(std::uint64_t seed, std::uint64_t stream) {
  return random_bits(mix_bits(seed), stream);
}

// A number below `bound` (at least 1), each equally likely: draws under the next power of two until one fits, moving
// the counter on by one a draw.
constexpr std::uint64_t random_below(std::uint64_t bound, std::uint64_t key, std::uint64_t& counter) {
  const std::uint64_t mask = std::bit_ceil(bound) - 1;
  std::uint64_t value = random_bits(key, counter++) & mask;
  while (value >= bound) value = random_bits(key, counter++) & mask;
  return value;
}

}  // namespace lockstep
