#include "framework/interconnect/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/support/seed.h"

namespace lockstep {
namespace {

// 14 us and a slow path up to 64 KiB, then more start-up at 25 times the bandwidth, as NCCL's protocols do.
double true_us(std::int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  return bytes <= 65536 ? 14 + size / 12e3 : 26 + size / 300e3;
}

std::vector<MeasuredTime> sweep(double noise, std::mt19937_64& source) {
  std::normal_distribution<double> factor(0, noise);
  std::vector<MeasuredTime> points;
  for (std::int64_t bytes = 1024; bytes <= 1 << 28; bytes *= 2) {
    points.push_back({bytes, true_us(bytes) * std::exp(factor(source))});
  }
  std::shuffle(points.begin(), points.end(), source);
  return points;
}

TEST(CostModel, FindsRegimesAgain) {
  std::mt19937_64 source(testing::test_seed());
  const CostModel model = fit_cost_model("nvlink", 2, false, sweep(0.0, source));
  ASSERT_EQ(model.regimes.size(), 2u);
  EXPECT_EQ(model.regimes[0].last_bytes, 65536);
  EXPECT_EQ(model.regimes[1].first_bytes, 131072);
  EXPECT_NEAR(model.regimes[0].alpha_us, 14, 1e-6);
  EXPECT_NEAR(model.regimes[1].alpha_us, 26, 1e-6);
  EXPECT_NEAR(model.peak_busbw(), 300, 1e-6);
}

TEST(CostModel, OneRegimeWhereOneIsEnough) {
  std::vector<MeasuredTime> points;
  for (std::int64_t bytes = 8; bytes <= 1 << 26; bytes *= 4) points.push_back({bytes, 20 + 1e-4 * double(bytes)});
  const CostModel model = fit_cost_model("pcie", 2, true, points);
  ASSERT_EQ(model.regimes.size(), 1u);
  EXPECT_NEAR(model.all_reduce_us(12345678, 2), 20 + 1234.5678, 1e-6);
}

TEST(CostModel, PredictsBetweenMeasuredSizesUnderNoise) {
  std::mt19937_64 source(testing::test_seed());
  const CostModel model = fit_cost_model("nvlink", 2, false, sweep(0.03, source));
  for (const std::int64_t bytes : {3000, 50'000, 200'000, 5'000'000, 100'000'000, 600'000'000}) {
    EXPECT_NEAR(model.all_reduce_us(bytes, 2) / true_us(bytes), 1, 0.12) << bytes;
  }
}

TEST(CostModel, OutliersDoNotBendIt) {
  std::mt19937_64 source(testing::test_seed());
  std::vector<MeasuredTime> points = sweep(0.01, source);
  std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  points[3].us *= 9;
  points[14].us *= 5;
  const CostModel model = fit_cost_model("nvlink", 2, false, points);
  for (const std::int64_t bytes : {1024, 30'000, 1'000'000, 200'000'000}) {
    EXPECT_NEAR(model.all_reduce_us(bytes, 2) / true_us(bytes), 1, 0.15) << bytes;
  }
}

TEST(CostModel, NeverNegative) {
  std::mt19937_64 source(testing::test_seed());
  std::uniform_real_distribution<double> time(1, 100);
  std::vector<MeasuredTime> points;
  for (std::int64_t bytes = 8; bytes <= 1 << 20; bytes *= 2) points.push_back({bytes, time(source)});
  const CostModel model = fit_cost_model("noise", 2, false, points);
  for (const Regime& regime : model.regimes) {
    EXPECT_GE(regime.alpha_us, 0);
    EXPECT_GE(regime.beta_us_per_byte, 0);
  }
  for (std::int64_t bytes = 1; bytes <= 1 << 24; bytes *= 3) EXPECT_GE(model.all_reduce_us(bytes, 2), 0);
}

TEST(CostModel, RepeatedSizesCountOnceByTheirMedian) {
  const CostModel model =
      fit_cost_model("x", 2, false, std::vector<MeasuredTime>{{1000, 10}, {1000, 500}, {1000, 11}, {2000, 21}});
  EXPECT_NEAR(model.all_reduce_us(1000, 2), 11, 1e-9);
}

TEST(CostModel, MoreRanksStartMoreOftenAndSendMore) {
  CostModel model{.link = "x", .ranks = 2, .startup_share = 0.55, .regimes = {{1, 100, 15.2, 0.01}}};
  EXPECT_EQ(model.all_reduce_us(1000, 1), 0);
  EXPECT_NEAR(model.all_reduce_us(1000, 2), 15.2 + 10, 1e-9);
  // NCCL's own figures: 15.2, 28.8 and 56 us on 2, 4 and 8 ranks.
  EXPECT_NEAR(model.all_reduce_us(0, 4), 28.8, 0.2);
  EXPECT_NEAR(model.all_reduce_us(0, 8), 56, 0.5);
  EXPECT_NEAR(model.all_reduce_us(1'000'000, 8) - model.all_reduce_us(0, 8), 10000 * 1.75, 1e-6);
  EXPECT_EQ(model.band(100, 2).high, model.all_reduce_us(100, 2));
  EXPECT_GT(model.band(100, 8).high, 1.1 * model.all_reduce_us(100, 8));
  model.shared = true;
  EXPECT_EQ(model.band(100, 8).high, 4 * model.all_reduce_us(100, 8));
}

TEST(CostModel, BeyondWhatWasMeasuredTheBandOpens) {
  const CostModel model{.link = "x", .ranks = 2, .regimes = {{100, 1000, 10, 0.01}}};
  EXPECT_TRUE(model.is_measured(100) && model.is_measured(1000));
  EXPECT_FALSE(model.is_measured(99) || model.is_measured(1001));
  EXPECT_EQ(model.band(500, 2).low, model.all_reduce_us(500, 2));
  EXPECT_EQ(model.band(500, 2).high, model.all_reduce_us(500, 2));
  EXPECT_DOUBLE_EQ(model.band(1'000'000, 2).low, 20);
  EXPECT_DOUBLE_EQ(model.band(1'000'000, 2).high, 20'000);
  EXPECT_DOUBLE_EQ(model.band(10, 2).low, 1.1);
  EXPECT_DOUBLE_EQ(model.band(10, 2).high, 11);
  for (const std::int64_t bytes : {4, 10, 5000, 1'000'000}) {
    EXPECT_LE(model.band(bytes, 2).low, model.all_reduce_us(bytes, 2)) << bytes;
    EXPECT_GE(model.band(bytes, 2).high, model.all_reduce_us(bytes, 2)) << bytes;
  }
}

TEST(CostModel, ManySizesTakeNoLonger) {
  std::mt19937_64 source(testing::test_seed());
  std::normal_distribution<double> factor(0, 0.02);
  std::vector<MeasuredTime> points;
  for (std::int64_t i = 1; i <= 10'000; ++i) {
    const std::int64_t bytes = i * 1000;
    points.push_back({bytes, (bytes <= 3'000'000 ? 14.0 + double(bytes) / 12e3 : 26 + double(bytes) / 300e3) *
                                 std::exp(factor(source))});
  }
  const auto start = std::chrono::steady_clock::now();
  const CostModel model = fit_cost_model("nvlink", 2, false, points);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(model.regimes.front().first_bytes, 1000);
  EXPECT_EQ(model.regimes.back().last_bytes, 10'000'000);
  EXPECT_NEAR(model.all_reduce_us(1'000'000, 2), 14 + 1e6 / 12e3, 5);
  EXPECT_NEAR(model.all_reduce_us(9'000'000, 2), 26 + 9e6 / 300e3, 3);
}

TEST(CostModel, AMeasuredLinkStartsLikeItsKind) {
  const std::vector<MeasuredTime> points{{1000, 20}, {2000, 20}};
  // Of alpha at 8 ranks, 14 starts instead of 2.
  EXPECT_NEAR(fit_cost_model("nvlink", 2, false, points).all_reduce_us(1, 8), 20 * (0.55 + 0.45 * 7), 1e-9);
  EXPECT_NEAR(fit_cost_model("pcie", 2, true, points).all_reduce_us(1, 8), 20 * (0.42 + 0.58 * 7), 1e-9);
}

TEST(CostModel, RefusesWhatCannotBeFitted) {
  using Sweep = std::vector<MeasuredTime>;
  EXPECT_THROW(fit_cost_model("x", 2, false, Sweep{{1000, 10}}), std::invalid_argument);
  EXPECT_THROW(fit_cost_model("x", 2, false, Sweep{{1000, 10}, {2000, 0}}), std::invalid_argument);
  EXPECT_THROW(fit_cost_model("x", 2, false, Sweep{{1000, 10}, {2000, NAN}}), std::invalid_argument);
  EXPECT_THROW(fit_cost_model("x", 2, false, Sweep{{0, 10}, {2000, 5}}), std::invalid_argument);
  EXPECT_THROW(fit_cost_model("x", 1, false, Sweep{{1000, 10}, {2000, 5}}), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
