#include "framework/ops/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/support/random.h"

namespace lockstep::testing {
namespace {

TEST(Reduction, SumAndMeanGiveAScalar) {
  const Tensor x = Tensor::from_host<double>(std::vector<double>{1, 2, 3, 4, 5, 6.5}, {2, 3});
  EXPECT_EQ(sum(x).shape(), Shape{});
  EXPECT_DOUBLE_EQ(sum(x).to_host<double>()[0], 21.5);
  EXPECT_DOUBLE_EQ(mean(x).to_host<double>()[0], 21.5 / 6);
}

TEST(Reduction, OfNothing) {
  const Tensor x = Tensor::empty({0, 3}, DType::f32);
  EXPECT_EQ(sum(x).to_host<float>()[0], 0);
  EXPECT_TRUE(std::isnan(mean(x).to_host<float>()[0]));
}

TEST(Reduction, MatchesASumInLongDouble) {
  for (const std::int64_t size : {1, 3, 63, 64, 65, 4095, 4096, 4097, 100001}) {
    const std::vector<double> x = random_values(size, -1, 1, static_cast<std::uint64_t>(size));
    const long double expected = std::accumulate(x.begin(), x.end(), 0.0L);
    EXPECT_NEAR(sum(Tensor::from_host<double>(x, {size})).to_host<double>()[0], static_cast<double>(expected), 1e-11);
  }
}

TEST(Reduction, ErrorInF32DoesNotGrowWithTheSize) {
  const std::int64_t size = 4'000'000;  // added one after the other, these are wrong in the third digit
  const std::vector<float> x = random_values<float>(size, 0, 1);
  const double expected = std::accumulate(x.begin(), x.end(), 0.0);
  EXPECT_NEAR(static_cast<double>(sum(Tensor::from_host<float>(x, {size})).to_host<float>()[0]), expected,
              2e-7 * expected);
}

}  // namespace
}  // namespace lockstep::testing
