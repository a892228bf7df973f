#include "kernels/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "framework/core/context.h"
#include "framework/core/tensor.h"
#include "tests/support/seed.h"

namespace lockstep::kernels {
namespace {

std::array<std::uint32_t, 4> philox(PhiloxBlock counter, std::uint64_t key) {
  const PhiloxBlock block = philox4x32(counter, key);
  return {block.word[0], block.word[1], block.word[2], block.word[3]};
}

// The test vectors that the authors publish with their library (Random123, philox4x32 of 10 rounds).
TEST(Philox, GivesThePublishedNumbers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox({{0, 0, 0, 0}}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffffffffffff),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

template <class T>
std::vector<T> uniform(std::int64_t count, double low, double high, std::uint64_t seed, std::uint32_t stream = 0) {
  const Tensor x = Tensor::empty({count}, dtype_of<T>());
  cpu::fill_uniform(context().exec(), x, low, high, seed, stream);
  return x.to_host<T>();
}

template <class T>
std::vector<T> normal(std::int64_t count, double mean, double std, std::uint64_t seed, std::uint32_t stream = 0) {
  const Tensor x = Tensor::empty({count}, dtype_of<T>());
  cpu::fill_normal(context().exec(), x, mean, std, seed, stream);
  return x.to_host<T>();
}

// Largest distance between the distribution function of the sample and `cdf` (Kolmogorov and Smirnov).
double distance(std::vector<double> sample, const std::function<double(double)>& cdf) {
  std::sort(sample.begin(), sample.end());
  double largest = 0;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    largest = std::max(largest,
                       std::abs(cdf(sample[i]) - (static_cast<double>(i) + 0.5) / static_cast<double>(sample.size())));
  }
  return largest;
}

constexpr std::int64_t kCount = 100'003;
// A sample of the right distribution is farther away less than once in 10^8 runs.
const double kFar = 3.1 / std::sqrt(static_cast<double>(kCount));

TEST(FillUniform, HasItsDistribution) {
  const std::vector<double> x = uniform<double>(kCount, -2, 3, testing::test_seed());
  EXPECT_GE(*std::min_element(x.begin(), x.end()), -2);
  EXPECT_LT(*std::max_element(x.begin(), x.end()), 3);
  EXPECT_LT(distance(x, [](double value) { return (value + 2) / 5; }), kFar);
}

TEST(FillNormal, HasItsDistribution) {
  const std::vector<double> x = normal<double>(kCount, 1, 0.02, testing::test_seed());
  EXPECT_LT(distance(x, [](double value) { return 0.5 * std::erfc((1 - value) / (0.02 * std::sqrt(2.0))); }), kFar);
}

TEST(FillNormal, NeighboursAreUncorrelated) {
  const std::vector<double> x = normal<double>(kCount, 0, 1, testing::test_seed());
  for (const std::size_t step : {1, 2, 3, 4}) {
    double product = 0;
    for (std::size_t i = step; i < x.size(); ++i) product += x[i] * x[i - step];
    EXPECT_NEAR(product / static_cast<double>(x.size()), 0, 6 / std::sqrt(static_cast<double>(x.size()))) << step;
  }
}

TEST(Fills, BothTypesGetTheSameDraws) {
  const std::uint64_t seed = testing::test_seed();
  const auto rounded = [](const std::vector<double>& x) { return std::vector<float>(x.begin(), x.end()); };
  EXPECT_EQ(uniform<float>(1001, -1, 1, seed), rounded(uniform<double>(1001, -1, 1, seed)));
  EXPECT_EQ(normal<float>(1001, 0, 1, seed), rounded(normal<double>(1001, 0, 1, seed)));
}

TEST(Fills, AShorterTensorGetsTheBeginningOfALongerOne) {
  const std::uint64_t seed = testing::test_seed();
  const std::vector<double> whole = normal<double>(1001, 0, 1, seed);
  for (const std::int64_t size : {0, 1, 3, 17}) {
    EXPECT_EQ(normal<double>(size, 0, 1, seed), std::vector<double>(whole.begin(), whole.begin() + size));
  }
}

TEST(Fills, SeedsAndStreamsDiffer) {
  const std::uint64_t seed = testing::test_seed();
  const std::vector<double> first = uniform<double>(1000, 0, 1, seed, 0);
  for (const auto& other : {uniform<double>(1000, 0, 1, seed + 1, 0), uniform<double>(1000, 0, 1, seed, 1)}) {
    int equal = 0;
    for (std::size_t i = 0; i < first.size(); ++i) equal += first[i] == other[i] ? 1 : 0;
    EXPECT_LE(equal, 3);
  }
}

}  // namespace
}  // namespace lockstep::kernels
