#include "framework/optim/schedule.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/golden.h"

namespace lockstep {
namespace {

Schedule schedule_of(const nlohmann::json& golden) {
  const std::string kind = golden["kind"];
  Schedule schedule;
  schedule.kind = kind == "cosine"   ? Schedule::Kind::cosine
                  : kind == "linear" ? Schedule::Kind::linear
                  : kind == "step"   ? Schedule::Kind::step
                                     : Schedule::Kind::constant;
  schedule.peak = golden["peak"];
  schedule.final_fraction = golden.value("final_fraction", schedule.final_fraction);
  schedule.warmup_steps = golden.value("warmup_steps", schedule.warmup_steps);
  schedule.total_steps = golden.value("total_steps", schedule.total_steps);
  schedule.step_size = golden.value("step_size", schedule.step_size);
  schedule.gamma = golden.value("gamma", schedule.gamma);
  return schedule;
}

TEST(Schedule, FollowsPyTorch) {
  const nlohmann::json cases = testing::read_golden("schedules.json")["cases"];
  ASSERT_EQ(cases.size(), 8U);  // four kinds, each with and without warm-up
  for (const nlohmann::json& golden : cases) {
    const Schedule schedule = schedule_of(golden);
    const auto rates = golden["learning_rates"].get<std::vector<double>>();
    ASSERT_EQ(rates.size(), 20U);
    for (std::size_t i = 0; i < rates.size(); ++i) {
      EXPECT_NEAR(schedule.learning_rate(static_cast<std::int64_t>(i)), rates[i], 1e-14)
          << golden["kind"] << ", warm-up of " << schedule.warmup_steps << ", step " << i;
    }
  }
}

TEST(Schedule, WarmsUpToThePeak) {
  const Schedule schedule{.peak = 0.4, .warmup_steps = 3};
  EXPECT_DOUBLE_EQ(schedule.learning_rate(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(2), 0.3);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(3), 0.4);
}

TEST(Schedule, StaysAtItsEnd) {
  for (const auto kind : {Schedule::Kind::cosine, Schedule::Kind::linear}) {
    const Schedule schedule{.kind = kind, .peak = 2.0, .final_fraction = 0.1, .warmup_steps = 2, .total_steps = 12};
    EXPECT_GT(schedule.learning_rate(11), 0.2 + 1e-3);
    EXPECT_DOUBLE_EQ(schedule.learning_rate(12), 0.2);
    EXPECT_DOUBLE_EQ(schedule.learning_rate(1'000'000), 0.2);
  }
}

// A warm-up at least as long as the run leaves nothing to fall over.
TEST(Schedule, TakesAWarmupAsLongAsTheRun) {
  const Schedule schedule{.kind = Schedule::Kind::cosine, .peak = 1.0, .warmup_steps = 5, .total_steps = 5};
  EXPECT_DOUBLE_EQ(schedule.learning_rate(4), 5.0 / 6.0);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(5), 1.0);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(6), 0.0);
}

}  // namespace
}  // namespace lockstep
