#include "framework/core/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/support/seed.h"

namespace lockstep {
namespace {

TEST(Statistics, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(median(std::vector{3.0}), 3.0);
  EXPECT_EQ(median(std::vector{9.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(median(std::vector{9.0, 1.0, 2.0, 4.0}), 3.0);
  EXPECT_THROW(median({}), std::invalid_argument);
}

TEST(Statistics, TQuantilesAreThoseOfTheTables) {
  // Two-sided 95 % and 99 %, as printed in any table of Student's t.
  const struct {
    int degrees;
    double t95, t99;
  } table[] = {{1, 12.7062, 63.6567}, {2, 4.3027, 9.9248},  {3, 3.1824, 5.8409},
               {4, 2.7764, 4.6041},   {5, 2.5706, 4.0321},  {9, 2.2622, 3.2498},
               {10, 2.2281, 3.1693},  {30, 2.0423, 2.7500}, {120, 1.9799, 2.6174}};
  for (const auto& row : table) {
    EXPECT_NEAR(student_t_quantile(0.95, row.degrees), row.t95, 6e-5) << row.degrees;
    EXPECT_NEAR(student_t_quantile(0.99, row.degrees), row.t99, 6e-5) << row.degrees;
  }
  EXPECT_THROW(student_t_quantile(0.95, 0), std::invalid_argument);
  EXPECT_THROW(student_t_quantile(1.0, 3), std::invalid_argument);
}

TEST(Statistics, TDistributionIsTheIntegralOfItsDensity) {
  for (const int degrees : {1, 2, 5, 8, 19}) {
    const auto density = [&](double x) {
      return std::exp(std::lgamma((degrees + 1) / 2.0) - std::lgamma(degrees / 2.0)) /
             std::sqrt(degrees * 3.14159265358979) * std::pow(1 + x * x / degrees, -(degrees + 1) / 2.0);
    };
    double integral = 0;
    constexpr int kSteps = 20000;
    for (int i = 0; i < kSteps; ++i) integral += 2 * density((i + 0.5) * 1.7 / kSteps) * 1.7 / kSteps;
    EXPECT_NEAR(student_t_within(1.7, degrees), integral, 1e-6) << degrees;
  }
}

TEST(Statistics, GeometricMeanByHand) {
  // Logarithms -d, 0, d: mean 0, standard deviation d, half width t(0.95, 2) d / sqrt(3).
  const double d = std::log(1.2);
  const Estimate estimate = geometric_mean(std::vector{1 / 1.2, 1.0, 1.2});
  EXPECT_NEAR(estimate.value, 1.0, 1e-12);
  EXPECT_NEAR(estimate.high, std::exp(4.30265 * d / std::sqrt(3.0)), 1e-4);
  EXPECT_NEAR(estimate.low * estimate.high, 1.0, 1e-9);
  EXPECT_EQ(geometric_mean(std::vector{2.0}).high, std::numeric_limits<double>::infinity());
  EXPECT_THROW(geometric_mean(std::vector{1.0, 0.0}), std::invalid_argument);
}

TEST(Statistics, IntervalHoldsTheTruthNineteenTimesInTwenty) {
  std::mt19937_64 source(testing::test_seed());
  std::normal_distribution<double> noise(std::log(1.5), 0.1);
  constexpr int kRuns = 4000;
  int held = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> ratios(5);
    std::generate(ratios.begin(), ratios.end(), [&] { return std::exp(noise(source)); });
    const Estimate estimate = geometric_mean(ratios);
    if (estimate.low <= 1.5 && 1.5 <= estimate.high) ++held;
  }
  EXPECT_NEAR(held, 0.95 * kRuns, 5 * std::sqrt(kRuns * 0.95 * 0.05));
}

}  // namespace
}  // namespace lockstep
