#include "framework/interconnect/comparison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/support/seed.h"
#include "tests/support/text.h"

namespace lockstep {
namespace {

using testing::contains;

TEST(Comparison, FiguresByHand) {
  const std::vector<ArmRun> fast{{10, 8}, {10, 8}, {11, 8}};
  const std::vector<ArmRun> slow{{24, 8}, {24, 8}, {26.4, 8}};
  const Comparison result = compare_arms(fast, slow);
  EXPECT_DOUBLE_EQ(result.arms[0].step_ms.value, 10);
  EXPECT_DOUBLE_EQ(result.arms[0].exposed_ms, 2);
  EXPECT_DOUBLE_EQ(result.arms[1].exposed_ms, 16);
  EXPECT_DOUBLE_EQ(result.alone_ms, 8);
  EXPECT_DOUBLE_EQ(result.bound, 3);
  // Paired: the third pair was disturbed as a whole, which the ratio does not see.
  EXPECT_NEAR(result.speedup.value, 2.4, 1e-12);
  EXPECT_NEAR(result.speedup.low, 2.4, 1e-9);
  EXPECT_NEAR(result.speedup.high, 2.4, 1e-9);
  const Comparison turned = compare_arms(slow, fast);
  EXPECT_NEAR(turned.speedup.value, 1 / 2.4, 1e-12);
  EXPECT_DOUBLE_EQ(turned.bound, 3) << "E is of the slower arm";
  EXPECT_THROW(compare_arms(fast, std::vector<ArmRun>{{1, 1}}), std::invalid_argument);
}

TEST(Comparison, AAHoldsOneAsOftenAsItSays) {
  std::mt19937_64 source(testing::test_seed());
  std::normal_distribution<double> drift(0, 0.2), noise(0, 0.02);
  int held = 0;
  constexpr int kExperiments = 1000;
  for (int i = 0; i < kExperiments; ++i) {
    std::vector<ArmRun> a, b;
    for (int run = 0; run < 5; ++run) {
      const double machine = 20 * std::exp(drift(source));  // the machine's, common to a pair
      a.push_back({machine * std::exp(noise(source)), 10});
      b.push_back({machine * std::exp(noise(source)), 10});
    }
    const Estimate speedup = compare_arms(a, b).speedup;
    if (speedup.low <= 1 && 1 <= speedup.high) ++held;
  }
  EXPECT_NEAR(held, 0.95 * kExperiments, 5 * std::sqrt(kExperiments * 0.95 * 0.05));
}

TEST(Comparison, MedianIsWithinItsInterval) {
  const ArmSummary summary = summarize(std::vector<ArmRun>{{10, 5}, {10, 5}, {10, 5}, {10, 5}, {1000, 5}});
  EXPECT_DOUBLE_EQ(summary.step_ms.value, 10);
  EXPECT_LE(summary.step_ms.low, 10);
  EXPECT_GE(summary.step_ms.high, 10);
}

TEST(Comparison, ConcludesInOneSentence) {
  const auto conclude = [](double fast_ms, double slow_ms, double alone_ms, double noise = 0) {
    std::vector<ArmRun> fast, slow;
    for (int i = -2; i <= 2; ++i) {
      fast.push_back({fast_ms, alone_ms});
      slow.push_back({slow_ms * (1 + noise * i), alone_ms});
    }
    const std::string text = conclusion(compare_arms(fast, slow), {"nvlink", "pcie"}, {4, 40});
    EXPECT_EQ(conclusion(compare_arms(slow, fast), {"pcie", "nvlink"}, {40, 4}), text) << "it depends on the order";
    return text;
  };
  EXPECT_TRUE(contains(conclude(10, 24, 8), "communication-bound")) << conclude(10, 24, 8);
  EXPECT_TRUE(contains(conclude(10, 24, 8), "67 %")) << conclude(10, 24, 8);
  EXPECT_TRUE(contains(conclude(100, 120, 98), "partly hidden")) << conclude(100, 120, 98);
  EXPECT_TRUE(contains(conclude(100, 101, 99), "compute-bound")) << conclude(100, 101, 99);
  EXPECT_TRUE(contains(conclude(100, 112, 98, 0.2), "undecided")) << conclude(100, 112, 98, 0.2);
  EXPECT_TRUE(contains(conclude(24.04, 10.05, 9.62), "60 % of a step on nvlink")) << conclude(24.04, 10.05, 9.62);
  EXPECT_TRUE(contains(conclude(24.04, 10.05, 9.62), "pcie makes it 2.39 times as fast"));
  const std::vector<ArmRun> same{{10, 8}, {11, 8}, {10.5, 8}};
  EXPECT_TRUE(contains(conclusion(compare_arms(same, same), {"pcie", "pcie"}, {5, 5}), "no difference"));
}

}  // namespace
}  // namespace lockstep
