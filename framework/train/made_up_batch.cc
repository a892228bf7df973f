#include "framework/train/made_up_batch.h"

#include <vector>

#include "framework/core/context.h"
#include "framework/data/counter_random.h"
#include "framework/train/input.h"

namespace lockstep {

DeviceBatch zero_batch(std::int64_t count, const Dataset& dataset) {
  return {.samples = Tensor::zeros(dataset.batch_shape(count), context().dtype()),
          .labels = Tensor::zeros({count}, DType::i32)};
}

DeviceBatch random_batch(const DatasetInfo& info, std::int64_t count, std::int64_t first, std::uint64_t key) {
  std::vector<std::int64_t> extents{count};
  extents.insert(extents.end(), info.sample_shape.span().begin(), info.sample_shape.span().end());
  const Shape shape(extents);
  std::uint64_t counter = 0;
  const auto classes = static_cast<std::uint64_t>(info.num_classes);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(count));
  std::vector<std::uint8_t> samples(static_cast<std::size_t>(shape.numel()));
  for (std::int32_t& label : labels) label = static_cast<std::int32_t>(random_bits(key, counter++) % classes);
  for (std::uint8_t& element : samples) element = static_cast<std::uint8_t>(random_bits(key, counter++));
  return to_device({.samples = ConstView(samples.data(), DType::u8, shape),
                    .labels = ConstView(labels.data(), DType::i32, {count}),
                    .count = count,
                    .first = first},
                   info);
}

}  // namespace lockstep
