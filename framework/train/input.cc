#include "framework/train/input.h"

#include <vector>

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/ops/image.h"

namespace lockstep {
namespace {

Shape with_batch(std::int64_t count, const Shape& sample_shape) {
  std::vector<std::int64_t> extents{count};
  extents.insert(extents.end(), sample_shape.span().begin(), sample_shape.span().end());
  return Shape(extents);
}

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
  return {.samples = Tensor::zeros(with_batch(count, dataset.sample_shape()), context().dtype()),
          .labels = Tensor::zeros({count}, DType::i32)};
}

}  // namespace lockstep
