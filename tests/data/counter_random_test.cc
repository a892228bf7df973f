#include "framework/data/counter_random.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "tests/data/testing.h"

namespace lockstep {
namespace {

// The outputs of the reference implementation of SplitMix64 (Vigna) for the seed 1234567.
TEST(CounterRandom, IsSplitMix64) {
  constexpr std::array<std::uint64_t, 5> kReference = {6457827717110365317U, 3203168211198807973U, 9817491932198370423U,
                                                       4593380528125082431U, 16408922859458223821U};
  for (std::size_t i = 0; i < kReference.size(); ++i) EXPECT_EQ(random_bits(1234567, i), kReference[i]);
}

TEST(CounterRandom, BelowIsUniform) {
  const std::uint64_t seed = testing::test_seed();
  for (const std::uint64_t bound : {1U, 2U, 3U, 5U, 8U, 11U}) {
    constexpr int kDrawsEach = 4000;
    std::array<int, 11> counts{};
    std::uint64_t counter = 0;
    for (std::uint64_t i = 0; i < kDrawsEach * bound; ++i) ++counts.at(random_below(bound, seed, counter));
    // Six standard deviations.
    for (std::uint64_t value = 0; value < bound; ++value) EXPECT_NEAR(counts.at(value), kDrawsEach, 380) << bound;
  }
}

TEST(CounterRandom, StreamsDiffer) {
  EXPECT_NE(stream_key(1, 0), stream_key(1, 1));
  EXPECT_NE(stream_key(1, 0), stream_key(2, 0));
  EXPECT_NE(stream_key(1, 2), stream_key(2, 1));
}

}  // namespace
}  // namespace lockstep
