#include "kernels/gradient_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "framework/core/context.h"
#include "framework/core/tensor.h"
#include "tests/support/random.h"

namespace lockstep::kernels {
namespace {

std::vector<double> partials_of(const Tensor& gradients) {
  const Tensor partials = Tensor::empty({(gradients.numel() + kNormBlock - 1) / kNormBlock}, DType::f64);
  cpu::sum_of_squares(context().exec(), gradients, partials);
  return partials.to_host<double>();
}

struct Combined {
  double norm, factor;
};

Combined combine(const std::vector<double>& partials, double max_norm) {
  const Tensor norm = Tensor::empty({}, DType::f64), factor = Tensor::empty({}, DType::f64);
  cpu::combine_norm(context().exec(), Tensor::from_host<double>(partials, {static_cast<std::int64_t>(partials.size())}),
                    max_norm, norm, factor);
  return {norm.to_host<double>()[0], factor.to_host<double>()[0]};
}

TEST(GradientNorm, PartialsAreTheSumsOfSquaresOfBlocks) {
  for (const std::int64_t count : {1L, 17L, kNormBlock, kNormBlock + 1, 3 * kNormBlock + 129}) {
    const std::vector<float> gradients = testing::random_values<float>(count, -1, 1);
    const std::vector<double> partials = partials_of(Tensor::from_host<float>(gradients, {count}));
    for (std::int64_t block = 0; block * kNormBlock < count; ++block) {
      const auto begin = gradients.begin() + block * kNormBlock;
      const auto end = gradients.begin() + std::min(count, (block + 1) * kNormBlock);
      const double expected = std::accumulate(
          begin, end, 0.0, [](double sum, float g) { return sum + static_cast<double>(g) * static_cast<double>(g); });
      EXPECT_NEAR(partials[static_cast<std::size_t>(block)], expected, 1e-12 * expected);
    }
  }
}

TEST(GradientNorm, BucketsGiveTheBitsOfTheWholeArena) {
  const std::int64_t count = 3 * kNormBlock + 129;
  const Tensor whole = Tensor::from_host<float>(testing::random_values<float>(count, -1, 1), {count});
  std::vector<double> joined = partials_of(whole.slice(0, kNormBlock));
  for (const double partial : partials_of(whole.slice(kNormBlock, count))) joined.push_back(partial);
  EXPECT_EQ(joined, partials_of(whole));
}

TEST(GradientNorm, SquaresThatOverflowF32AreSummed) {
  const Tensor gradients = Tensor::from_host<float>(std::vector<float>{3e30F, 4e30F}, {2});
  EXPECT_NEAR(combine(partials_of(gradients), 0).norm, 5e30, 1e24);
}

TEST(GradientNorm, FactorClipsToTheLargestNorm) {
  const std::vector<double> partials = {9, 7};
  EXPECT_DOUBLE_EQ(combine(partials, 1).norm, 4);
  EXPECT_DOUBLE_EQ(combine(partials, 1).factor, 1 / (4 + 1e-6));
  EXPECT_EQ(combine(partials, 5).factor, 1);
}

TEST(GradientNorm, ZeroClipsNothing) {
  EXPECT_EQ(combine({9, 7}, 0).factor, 1);
  EXPECT_DOUBLE_EQ(combine({9, 7}, 0).norm, 4);
}

TEST(GradientNorm, OfNothingIsZero) {
  EXPECT_TRUE(partials_of(Tensor::empty({0}, DType::f32)).empty());
  EXPECT_EQ(combine({}, 1).norm, 0);
  EXPECT_EQ(combine({}, 1).factor, 1);
}

TEST(GradientNorm, NanIsSeen) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Combined combined = combine(partials_of(Tensor::from_host<double>(std::vector{1.0, nan}, {2})), 1);
  EXPECT_TRUE(std::isnan(combined.norm));
  EXPECT_TRUE(std::isnan(combined.factor));
}

}  // namespace
}  // namespace lockstep::kernels
