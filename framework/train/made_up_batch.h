// Batches that come from no data set: for what must run before data is read, and to time steps with.
#pragma once

#include <cstdint>

#include "framework/data/dataset.h"
#include "framework/train/train_step.h"

namespace lockstep {

// Zeros, of the shape that to_device() would give a batch of the data set.
DeviceBatch zero_batch(std::int64_t count, const Dataset& dataset);

// Samples and labels of a data set that looks so, which follow from `key` alone.
DeviceBatch random_batch(const DatasetInfo& info, std::int64_t count, std::int64_t first, std::uint64_t key);

}  // namespace lockstep
