// From a loader's batch in host memory to the tensors that a model reads.
#pragma once

#include "framework/data/dataset.h"
#include "framework/data/loader.h"
#include "framework/train/train_step.h"

namespace lockstep {

// Samples become the context's floating-point type, normalised as the data set says; labels stay i32.
DeviceBatch to_device(const Batch& batch, const DatasetInfo& info);

// A batch of zeros of the shape that to_device would give: for what must run once before data is read.
DeviceBatch zero_batch(std::int64_t count, const Dataset& dataset);

}  // namespace lockstep
