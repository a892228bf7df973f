// From a loader's batch in host memory to the tensors that a model reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "framework/core/stream.h"
#include "framework/data/dataset.h"
#include "framework/data/loader.h"
#include "framework/train/train_step.h"

namespace lockstep {

// Samples become the context's floating-point type, normalised as the data set says; labels stay i32.
DeviceBatch to_device(const Batch& batch, const DatasetInfo& info);

// A batch of zeros of the shape that to_device would give: for what must run once before data is read.
DeviceBatch zero_batch(std::int64_t count, const Dataset& dataset);

// Made-up samples and labels of a data set that looks so, which follow from `key` alone: to time steps with.
DeviceBatch random_batch(const DatasetInfo& info, std::int64_t count, std::int64_t first, std::uint64_t key);

// The training batches of a loader, always in the same tensors. On a GPU a batch is copied to the device on a stream of
// its own while the step before it runs.
class TrainInput {
 public:
  // Both must outlive the input; batches hold `batch_size` samples.
  TrainInput(const Dataset& dataset, Loader& loader, std::int64_t batch_size);

  // In stream order: what was enqueued before reads the batch before. The host waits only where it is more than two
  // batches ahead of the device.
  DeviceBatch next();

 private:
  // Where a batch arrives on the GPU as the host has it.
  struct Slot {
    Tensor samples, labels;
    Event copied, free;
  };

  const Batch& load();

  const DatasetInfo& info_;
  Loader& loader_;
  DeviceBatch batch_;
  Stream copies_;
  std::array<Slot, 2> slots_;
  std::size_t current_ = 0;
};

}  // namespace lockstep
