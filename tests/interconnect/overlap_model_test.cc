#include "framework/interconnect/overlap_model.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace lockstep {
namespace {

// Forward 10 ms, backward until 30, update until 34; buckets of 1, 1 and 2 MB ready at 15, 20 and 30 ms.
const StepTimeline kAlone{
    .forward_ms = 10,
    .backward_ms = 30,
    .step_ms = 34,
    .buckets = {{0, 1'000'000, 15, 15, 15}, {1, 1'000'000, 20, 20, 20}, {2, 2'000'000, 30, 30, 30}}};

// `ms` a megabyte and nothing else.
AllReduceTime per_megabyte(double ms) {
  return [ms](std::int64_t bytes) { return ms * 1e-6 * static_cast<double>(bytes); };
}

TEST(OverlapModel, AnInfinitelyFastLinkCostsNothing) {
  const StepPrediction step = predict_step(kAlone, per_megabyte(0));
  EXPECT_DOUBLE_EQ(step.step_ms, 34);
  EXPECT_DOUBLE_EQ(step.exposed_ms, 0);
  EXPECT_DOUBLE_EQ(hidden_share(step.communication_ms, step.exposed_ms), 1);
}

TEST(OverlapModel, OnlyTheLastBucketShowsWhereTheLinkKeepsUp) {
  // 15-19, 20-24, 30-38. The first two buckets are updated by 32.
  const StepPrediction step = predict_step(kAlone, per_megabyte(4));
  EXPECT_DOUBLE_EQ(step.buckets[1].launched_ms, 20);
  EXPECT_NEAR(step.buckets[2].finished_ms, 38, 1e-9);
  EXPECT_NEAR(step.step_ms, 40, 1e-9);
  EXPECT_NEAR(step.exposed_ms, 6, 1e-9);
  EXPECT_NEAR(step.communication_ms, 16, 1e-4);
  EXPECT_NEAR(hidden_share(step.communication_ms, step.exposed_ms), 10.0 / 16, 1e-4);
}

TEST(OverlapModel, ASlowLinkIsAQueue) {
  // 15-35, 35-55, 55-95, and 2 ms of update behind the last.
  const StepPrediction step = predict_step(kAlone, per_megabyte(20));
  EXPECT_DOUBLE_EQ(step.buckets[1].launched_ms, 35);
  EXPECT_DOUBLE_EQ(step.buckets[2].launched_ms, 55);
  EXPECT_NEAR(step.step_ms, 97, 1e-9);
}

TEST(OverlapModel, ClippingUpdatesBehindTheLastBucket) {
  EXPECT_NEAR(predict_step(kAlone, per_megabyte(4), 4, false).step_ms, 42, 1e-9);
}

TEST(OverlapModel, TheLossGoesFirst) {
  const auto ten = [](std::int64_t) { return 10.0; };
  EXPECT_DOUBLE_EQ(predict_step(kAlone, ten, 4).buckets[0].launched_ms, 20);
  EXPECT_DOUBLE_EQ(predict_step(kAlone, ten, 0).buckets[0].launched_ms, 15);
}

TEST(OverlapModel, BoundOfTheSpeedup) {
  EXPECT_DOUBLE_EQ(speedup_bound(10, 5), 1.5);
  EXPECT_DOUBLE_EQ(speedup_bound(10, -0.1), 1.0);
  EXPECT_THROW(speedup_bound(0, 1), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
