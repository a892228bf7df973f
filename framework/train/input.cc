#include "framework/train/input.h"

#include "framework/core/context.h"
#include "framework/ops/image.h"

namespace lockstep {
namespace {

Tensor copy_to_device(const ConstView& host) {
  const Tensor tensor = Tensor::empty(host.shape, host.dtype);
  tensor.copy_from_host(host);
  return tensor;
}

}  // namespace

DeviceBatch to_device(const Batch& batch, const DatasetInfo& info) {
  return {.samples = normalize(copy_to_device(batch.samples), info.mean, info.stddev),
          .labels = copy_to_device(batch.labels),
          .first = batch.first};
}

DeviceBatch zero_batch(std::int64_t count, const Dataset& dataset) {
  return {.samples = Tensor::zeros(dataset.batch_shape(count), context().dtype()),
          .labels = Tensor::zeros({count}, DType::i32)};
}

}  // namespace lockstep
