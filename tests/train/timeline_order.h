// What holds for every timeline of a step.
#pragma once

#include <gtest/gtest.h>

#include "framework/distributed/bucket_timing.h"
#include "framework/optim/parameter_arena.h"

namespace lockstep {

inline void expect_in_order(const StepTimeline& timeline, const ParameterArena& arena) {
  EXPECT_GT(timeline.forward_ms, 0.0);
  EXPECT_GE(timeline.backward_ms, timeline.forward_ms);
  EXPECT_GE(timeline.step_ms, timeline.backward_ms);
  ASSERT_EQ(timeline.buckets.size(), arena.buckets().size());
  double ready_before = timeline.forward_ms;
  double finished_before = 0.0;
  for (std::size_t i = 0; i < timeline.buckets.size(); ++i) {
    const BucketTiming& bucket = timeline.buckets[i];
    EXPECT_EQ(bucket.bucket, static_cast<int>(i));
    EXPECT_EQ(bucket.bytes, slice(arena.grads(), arena.buckets()[i].range).view().bytes());
    EXPECT_GE(bucket.ready_ms, ready_before);
    EXPECT_GE(bucket.launched_ms, bucket.ready_ms);
    EXPECT_GE(bucket.finished_ms, bucket.launched_ms);
    EXPECT_GE(bucket.finished_ms, finished_before);
    EXPECT_LE(bucket.ready_ms, timeline.backward_ms);
    EXPECT_LE(bucket.finished_ms, timeline.step_ms);
    ready_before = bucket.ready_ms;
    finished_before = bucket.finished_ms;
  }
}

}  // namespace lockstep
