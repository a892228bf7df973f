#include "framework/train/step_timing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <stdexcept>
#include <thread>

#include "framework/core/context.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "models/mlp.h"
#include "tests/support/random.h"
#include "tests/support/worlds.h"
#include "tests/train/timeline_order.h"

namespace lockstep {
namespace {

DeviceBatch random_batch() {
  return {.samples = Tensor::from_host(std::span<const float>(testing::random_values<float>(8 * 784, 0, 1)), {8, 784}),
          .labels = Tensor::from_host(std::span<const std::int32_t>(testing::random_indices(8, 10)), {8})};
}

TEST(StepTiming, TakesTheSlowestRankAndLeavesTheWarmUpOut) {
  run_local_world(2, [](ProcessGroup& group) {
    Context context;
    const ContextScope scope(context);
    Mlp model({.hidden = {16}});
    int calls = 0;
    const auto loss = [&](const DeviceBatch& batch) {
      // The first rank is slow; the first steps are very slow (one more call lays out the arena).
      std::this_thread::sleep_for(std::chrono::milliseconds(++calls <= 3 ? 200 : group.rank() == 0 ? 20 : 0));
      return softmax_cross_entropy(model.forward(batch.samples), batch.labels);
    };
    TrainStep step(model, loss, SgdConfig{}, group, {.timeline = true});
    const DeviceBatch batch = random_batch();
    step.prepare(batch);
    const std::vector<double> times = time_steps(step, batch, group, {.warmup = 2, .timed = 5});
    ASSERT_EQ(times.size(), 5u);
    EXPECT_GE(*std::min_element(times.begin(), times.end()), 20);
    EXPECT_LT(*std::min_element(times.begin(), times.end()), 200);

    const StepTimeline timeline = measure_timeline(step, batch, group, {.warmup = 1, .timed = 3});
    expect_in_order(timeline, step.arena());
    EXPECT_GE(timeline.forward_ms, 20);
    EXPECT_THROW(time_steps(step, batch, group, {.warmup = 0, .timed = 5}), std::invalid_argument);
  });
}

}  // namespace
}  // namespace lockstep
