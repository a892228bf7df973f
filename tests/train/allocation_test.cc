// After the first steps, training asks the system for no memory.
#include <gtest/gtest.h>
#include <malloc.h>

#include <memory>
#include <vector>

#include "framework/core/allocator.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/data/loader.h"
#include "framework/data/synthetic.h"
#include "framework/distributed/world.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/train/input.h"
#include "framework/train/train_step.h"
#include "models/lenet.h"
#include "tests/support/worlds.h"

namespace lockstep {
namespace {

// What this process has of the system, in bytes: the heap with all its arenas, and blocks mapped on their own.
std::size_t bytes_from_system() {
  const struct mallinfo2 info = mallinfo2();
  return info.arena + info.hblkhd;
}

void expect_no_allocation(ProcessGroup& group) {
  Context context;
  const ContextScope scope(context);
  LeNet model({.dropout = 0.1});
  const BatchSplit split{.batch_per_rank = 16, .accumulate = 2, .world_size = group.size()};
  const auto dataset = synthetic_dataset({.size = 512});
  Loader loader(*dataset, std::make_unique<TrainSampler>(dataset->size(), split, group.rank()));
  TrainStep step(
      model,
      [&](const DeviceBatch& batch) { return softmax_cross_entropy(model.forward(batch.samples), batch.labels); },
      AdamWConfig{}, group, {.accumulate = 2, .clip_norm = 1.0});
  const auto next = [&] { return to_device(loader.next(), dataset->info()); };

  constexpr int kWarmUp = 10;
  constexpr int kSteps = 60;  // several epochs
  std::int64_t allocations = 0;
  std::size_t bytes = 0;
  for (int i = 0; i < kWarmUp + kSteps; ++i) {
    if (i == kWarmUp) {
      group.barrier().wait();
      allocations = device_allocator(DeviceType::cpu).stats().system_allocations;
      bytes = bytes_from_system();
    }
    step.run(next, 1e-3);
  }
  group.barrier().wait();
  EXPECT_EQ(device_allocator(DeviceType::cpu).stats().system_allocations, allocations);
  EXPECT_EQ(bytes_from_system(), bytes);
}

TEST(Allocation, AStepAsksTheSystemForNothing) { run_local_world(1, expect_no_allocation); }

// In processes of their own, as ranks are: threads would share an allocator, whose peak depends on who runs when.
TEST(Allocation, NorDoesOneOfSeveralRanks) {
  const std::vector<int> statuses = run_process_world(2, [](const Environment& environment) {
    World world(environment);
    expect_no_allocation(world.group());
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
}

TEST(Allocation, TheCountSeesAnAllocation) {
  const std::size_t before = bytes_from_system();
  const std::unique_ptr<char[]> block(new char[64 << 20]);
  EXPECT_GT(bytes_from_system(), before) << static_cast<void*>(block.get());
}

}  // namespace
}  // namespace lockstep
