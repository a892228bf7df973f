#include "framework/data/dataset.h"

#include <algorithm>
#include <array>

#include "framework/core/error.h"

namespace lockstep {

Dataset::Dataset(DatasetInfo info, DType sample_dtype) : info_(std::move(info)), sample_dtype_(sample_dtype) {
  const std::string& name = info_.name;
  const Shape& shape = info_.sample_shape;
  expect(sample_dtype == DType::u8 || sample_dtype == DType::f32, "{}: expected samples of u8 or f32, got {}", name,
         dtype_name(sample_dtype));
  expect(info_.size >= 1, "{}: expected at least 1 sample, got {}", name, info_.size);
  expect(info_.num_classes >= 1, "{}: expected at least 1 class, got {}", name, info_.num_classes);
  // A batch puts one extent in front.
  expect(shape.rank() >= 1 && shape.rank() < Shape::kMaxRank && shape.numel() >= 1,
         "{}: expected a sample shape of 1 to {} dimensions, none of them 0, got {}", name, Shape::kMaxRank - 1, shape);

  if (info_.mean.empty() && info_.stddev.empty()) return;
  const auto channels = static_cast<std::size_t>(shape[-1]);
  expect(info_.mean.size() == channels && info_.stddev.size() == channels,
         "{}: expected mean and stddev of {} channels, got {} and {}", name, channels, info_.mean.size(),
         info_.stddev.size());
  expect(std::ranges::all_of(info_.stddev, [](float value) { return value > 0; }),
         "{}: expected every stddev above 0, got {}", name, *std::ranges::min_element(info_.stddev));
}

Shape Dataset::batch_shape(std::int64_t count) const {
  std::array<std::int64_t, Shape::kMaxRank> extents{count};
  std::ranges::copy(sample_shape().span(), extents.begin() + 1);
  return Shape(std::span(extents).first(static_cast<std::size_t>(sample_shape().rank()) + 1));
}

}  // namespace lockstep
