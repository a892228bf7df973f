#include "framework/train/train_step.h"

#include <gtest/gtest.h>

#include <span>
#include <stdexcept>
#include <vector>

#include "framework/core/allocator.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/distributed/local_group.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "models/mlp.h"
#include "tests/support/random.h"

namespace lockstep {
namespace {

constexpr std::int64_t kBatch = 8;

DeviceBatch batch_of(std::int64_t count = kBatch) {
  return {.samples =
              Tensor::from_host(std::span<const float>(testing::random_values<float>(count * 784, 0, 1)), {count, 784}),
          .labels = Tensor::from_host(std::span<const std::int32_t>(testing::random_indices(count, 10)), {count})};
}

class TrainStepTest : public ::testing::Test {
 protected:
  TrainStep make_step(const TrainStepOptions& options = {}) {
    return {
        model_,
        [this](const DeviceBatch& batch) { return softmax_cross_entropy(model_.forward(batch.samples), batch.labels); },
        SgdConfig{.momentum = 0.9}, *group_, options};
  }

  std::unique_ptr<ProcessGroup> group_ = std::move(make_local_groups(1).front());
  Mlp model_{MlpConfig{.hidden = {16}}};
};

TEST_F(TrainStepTest, WhatIsRefusedHasChangedNothing) {
  TrainStep step = make_step({.accumulate = 2});
  const DeviceBatch batch = batch_of();
  int taken = 0;
  const auto next = [&] {
    ++taken;
    return batch;
  };
  for (int i = 0; i < StepReports::kSlots; ++i) step.enqueue(next, 0.01);
  const std::vector<float> before = step.arena().masters().to_host<float>();
  EXPECT_THROW(step.enqueue(next, 0.01), std::invalid_argument);
  EXPECT_EQ(taken, 2 * StepReports::kSlots);
  EXPECT_EQ(step.optimizer().steps(), StepReports::kSlots);
  EXPECT_EQ(step.arena().masters().to_host<float>(), before);
  for (std::int64_t number = 1; number <= StepReports::kSlots; ++number) EXPECT_EQ(step.result().step, number);
  EXPECT_EQ(step.run(next, 0.01).step, StepReports::kSlots + 1);
}

TEST_F(TrainStepTest, MicroBatchesAreOfOneSize) {
  TrainStep step = make_step({.accumulate = 2});
  const DeviceBatch batch = batch_of();
  const DeviceBatch half = batch_of(kBatch / 2);
  int taken = 0;
  EXPECT_THROW(step.run([&] { return ++taken % 2 == 1 ? batch : half; }, 0.01), std::invalid_argument);
  EXPECT_EQ(step.run([&] { return half; }, 0.01).step, 2);
}

// What fails in the middle of the first preparation fails again, or is made up for, in the next.
TEST_F(TrainStepTest, APreparationThatFailedIsBegunAnew) {
  const DeviceBatch batch = batch_of();
  bool in_need = true;
  TrainStep step(
      model_,
      [&](const DeviceBatch& samples) {
        if (in_need) throw Error("no memory");
        return softmax_cross_entropy(model_.forward(samples.samples), samples.labels);
      },
      SgdConfig{.momentum = 2}, *group_);
  EXPECT_THROW(step.prepare(batch), Error);
  in_need = false;
  for (int i = 0; i < 2; ++i) EXPECT_THROW(step.run([&] { return batch; }, 0.01), std::invalid_argument);
  EXPECT_EQ(make_step().run([&] { return batch; }, 0.01).step, 1) << "the model can still be trained";
}

TEST_F(TrainStepTest, ReadsTensorsOfItsOwn) {
  TrainStep step = make_step();
  const DeviceBatch batch = batch_of();
  const std::vector<float> samples = batch.samples.to_host<float>();
  const DeviceBatch& own = step.prepare(batch);
  EXPECT_NE(own.samples.view().data, batch.samples.view().data);
  EXPECT_EQ(own.samples.to_host<float>(), samples);
  const DeviceBatch other = batch_of();
  step.run([&] { return other; }, 0.01);
  EXPECT_EQ(own.samples.to_host<float>(), other.samples.to_host<float>());
  EXPECT_EQ(batch.samples.to_host<float>(), samples);
}

TEST_F(TrainStepTest, ResultsComeInOrder) {
  TrainStep step = make_step();
  const DeviceBatch batch = batch_of();
  std::vector<std::int64_t> seen;
  for (int i = 1; i <= 5; ++i) {
    step.advance([&] { return batch; }, 0.01, i == 5, [&](const StepReport& report) { seen.push_back(report.step); });
  }
  EXPECT_EQ(seen, (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(step.pending(), 0);
}

TEST_F(TrainStepTest, GivesItsMemoryBack) {
  const DeviceBatch batch = batch_of();
  const auto train = [&] {
    make_step().run([&] { return batch; }, 0.01);
    return device_allocator(DeviceType::cpu).stats().bytes_reserved;
  };
  train();  // what others can use stays
  const std::size_t reserved = train();
  EXPECT_EQ(train(), reserved);
}

}  // namespace
}  // namespace lockstep
