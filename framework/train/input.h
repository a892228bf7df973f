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

// The training batches of a loader, always in the same tensors. On a GPU a batch is copied to the device on a stream of
// its own while the step before it runs.
class TrainInput {
 public:
  // Data set and loader must outlive the input. `target`: the tensors, as TrainStep::prepare() returns them.
  TrainInput(const Dataset& dataset, Loader& loader, const DeviceBatch& target);

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
  DeviceBatch batch_;  // what next() fills
  Stream copies_;
  std::array<Slot, 2> slots_;
  std::size_t current_ = 0;
};

}  // namespace lockstep
