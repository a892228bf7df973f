#include "framework/data/dataset.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>

#include "framework/data/loader.h"
#include "tests/data/testing.h"

namespace lockstep {
namespace {

using testing::rejection;

// A data set as a user writes one: points of the plane, labelled by the half that they lie in.
class Points : public DatasetOf<float> {
 public:
  Points() : DatasetOf({.name = "points", .size = 100, .sample_shape = {2}, .num_classes = 2}) {}
  void read(std::int64_t index, std::span<float> sample, std::int32_t& label) const override {
    sample[0] = static_cast<float>(index) - 49.5F;
    sample[1] = 0.5F;
    label = sample[0] > 0 ? 1 : 0;
  }
};

TEST(Dataset, OwnFeatureVectorsComeThroughTheLoader) {
  const Points points;
  EXPECT_EQ(points.sample_dtype(), DType::f32);
  EXPECT_EQ(points.sample_bytes(), 8);
  Loader loader(points, std::make_unique<EvalSampler>(points.size(), 30, 0, 1));
  std::int64_t index = 0;
  for (const Batch* batch = &loader.next(); batch->count > 0; batch = &loader.next()) {
    EXPECT_EQ(batch->samples.shape, (Shape{batch->count, 2}));
    const float* samples = batch->samples.as<float>();
    for (std::int64_t i = 0; i < batch->count; ++i, ++index) {
      EXPECT_EQ(samples[2 * i], static_cast<float>(index) - 49.5F);
      EXPECT_EQ(samples[2 * i + 1], 0.5F);
      EXPECT_EQ(batch->labels.as<std::int32_t>()[i], index >= 50 ? 1 : 0);
    }
  }
  EXPECT_EQ(index, 100);
}

template <class T>
class Described : public DatasetOf<T> {
 public:
  using DatasetOf<T>::DatasetOf;
  void read(std::int64_t, std::span<T>, std::int32_t&) const override {}
};

TEST(Dataset, RejectsDescriptionsThatContradictThemselves) {
  const DatasetInfo good{.name = "d", .size = 3, .sample_shape = {4, 5, 2}, .num_classes = 2};
  EXPECT_NO_THROW(Described<float>{good});
  const auto rejected = [&](auto change) {
    DatasetInfo info = good;
    change(info);
    return rejection([&] { Described<std::uint8_t>{info}; });
  };
  EXPECT_EQ(rejected([](DatasetInfo& info) { info.size = 0; }), "d: expected at least 1 sample, got 0");
  EXPECT_EQ(rejected([](DatasetInfo& info) { info.num_classes = 0; }), "d: expected at least 1 class, got 0");
  EXPECT_NE(rejected([](DatasetInfo& info) { info.sample_shape = {}; }).find("got ()"), std::string::npos);
  EXPECT_NE(rejected([](DatasetInfo& info) { info.sample_shape = {4, 0}; }).find("got (4, 0)"), std::string::npos);
  EXPECT_NE(rejected([](DatasetInfo& info) {
              info.sample_shape = {1, 1, 1, 1, 1};
            }).find("1 to 4 dimensions"),
            std::string::npos);
  EXPECT_EQ(rejected([](DatasetInfo& info) {
              info.mean = {0.5F, 0.5F};
            }),
            "d: expected mean and stddev of 2 channels, got 2 and 0");
  EXPECT_NE(rejected([](DatasetInfo& info) { info.mean = info.stddev = {0.5F}; }).find("2 channels, got 1 and 1"),
            std::string::npos);
  for (const float bad : {0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_NE(rejected([&](DatasetInfo& info) {
                info.mean = {0, 0};
                info.stddev = {1, bad};
              }).find("stddev above 0"),
              std::string::npos);
  }
  EXPECT_NE(rejection([&] { Described<double>{good}; }).find("u8 or f32, got f64"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
