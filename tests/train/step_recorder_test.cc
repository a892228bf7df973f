// The timeline of a step on CPU ranks, whose clock is the host's.
#include "framework/train/step_recorder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <thread>
#include <vector>

#include "framework/core/context.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/train/train_step.h"
#include "models/mlp.h"
#include "tests/support/random.h"
#include "tests/support/worlds.h"
#include "tests/train/timeline_order.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

DeviceBatch random_batch() {
  return {
      .samples = Tensor::from_host(std::span<const float>(testing::random_values<float>(32 * 784, 0, 1)), {32, 784}),
      .labels = Tensor::from_host(std::span<const std::int32_t>(testing::random_indices(32, 10)), {32})};
}

TEST(StepRecorder, TimelineIsInOrderOnEveryRank) {
  for (const Overlap overlap : {Overlap::on, Overlap::off, Overlap::naive}) {
    run_local_world(2, [&](ProcessGroup& group) {
      Context context;
      const ContextScope scope(context);
      Mlp model;
      const auto loss = [&](const DeviceBatch& batch) {
        return softmax_cross_entropy(model.forward(batch.samples), batch.labels);
      };
      TrainStep step(model, loss, SgdConfig{}, group,
                     {.accumulate = 2, .timeline = true, .buckets = {.overlap = overlap}, .caps = {.first_mib = 0.1}});
      const DeviceBatch batch = random_batch();
      for (int i = 0; i < 3; ++i) {
        const auto start = std::chrono::steady_clock::now();
        step.run([&] { return batch; }, 0.01);
        const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
        const StepTimeline timeline = step.timeline();
        ASSERT_GT(timeline.buckets.size(), 1U);
        expect_in_order(timeline, step.arena());
        EXPECT_LE(timeline.step_ms, taken.count());
      }
    });
  }
}

TEST(StepRecorder, ASlowForwardPassShows) {
  run_local_world(1, [](ProcessGroup& group) {
    Context context;
    const ContextScope scope(context);
    Mlp model;
    const auto loss = [&](const DeviceBatch& batch) {
      std::this_thread::sleep_for(30ms);
      return softmax_cross_entropy(model.forward(batch.samples), batch.labels);
    };
    TrainStep step(model, loss, SgdConfig{}, group, {.timeline = true});
    const DeviceBatch batch = random_batch();
    step.run([&] { return batch; }, 0.01);
    EXPECT_GE(step.timeline().forward_ms, 30.0);
    EXPECT_LT(step.timeline().backward_ms - step.timeline().forward_ms, 30.0 + step.timeline().forward_ms);
  });
}

TEST(StepRecorder, ProgressNamesTheLastBucket) {
  Context context;
  const ContextScope scope(context);
  Mlp model;
  const std::vector<Parameter*> parameters = model.parameters();
  const ParameterArena arena(parameters, {.first_mib = 0.1, .cap_mib = 0.1});
  kernels::StepScalars scalars{.step = 6};
  StepRecorder recorder(arena, &scalars, false);
  EXPECT_EQ(recorder.progress(), "after bucket 0 of 3 of step 0");
  for (std::size_t i = 0; i < arena.buckets().size(); ++i) recorder.mark_finished(i, {});
  EXPECT_EQ(recorder.progress(), "after bucket 3 of 3 of step 6");
  scalars.step = 7;
  recorder.mark_finished(0, {});
  EXPECT_EQ(recorder.progress(), "after bucket 1 of 3 of step 7");
  EXPECT_THROW(recorder.timeline(), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
