#include "framework/data/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "framework/data/loader.h"
#include "tests/data/testing.h"

namespace lockstep {
namespace {

using testing::rejection;
using testing::test_seed;

std::vector<int> pixels_of(const DatasetOf<std::uint8_t>& dataset, std::int64_t index, std::int32_t* label = nullptr) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(dataset.sample_bytes()));
  std::int32_t ignored = 0;
  dataset.read(index, pixels, label != nullptr ? *label : ignored);
  return {pixels.begin(), pixels.end()};
}

// From an implementation in Python, written from the definition.
TEST(Synthetic, KeepsItsBytesForEver) {
  const SyntheticOptions options{.sample_shape = {8, 9, 3}, .num_classes = 5, .size = 20, .seed = 7};
  const std::vector<int> pixels = pixels_of(*synthetic_dataset(options), 13);
  EXPECT_EQ(std::vector<int>(pixels.begin(), pixels.begin() + 12),
            (std::vector<int>{73, 175, 132, 57, 171, 38, 27, 236, 74, 129, 201, 28}));
  EXPECT_EQ(std::vector<int>(pixels.end() - 6, pixels.end()), (std::vector<int>{73, 176, 173, 83, 207, 188}));
  EXPECT_EQ(std::accumulate(pixels.begin(), pixels.end(), 0), 27986);

  SyntheticOptions test_options = options;
  test_options.split = Split::test;
  const std::vector<int> test_pixels = pixels_of(*synthetic_dataset(test_options), 13);
  EXPECT_EQ(std::vector<int>(test_pixels.begin(), test_pixels.begin() + 6),
            (std::vector<int>{58, 175, 137, 31, 196, 36}));
  EXPECT_EQ(std::accumulate(test_pixels.begin(), test_pixels.end(), 0), 28096);
}

TEST(Synthetic, TakesAnyShapeAndBalancesClasses) {
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{3, 17, 1}, Shape{32, 32, 3}}) {
    const auto dataset = synthetic_dataset({.sample_shape = shape, .num_classes = 7, .size = 21, .seed = test_seed()});
    EXPECT_EQ(dataset->sample_bytes(), shape.numel());
    std::array<int, 7> counts{};
    for (std::int64_t i = 0; i < dataset->size(); ++i) {
      std::int32_t label = -1;
      pixels_of(*dataset, i, &label);
      ++counts.at(static_cast<std::size_t>(label));
    }
    EXPECT_TRUE(std::ranges::all_of(counts, [](int count) { return count == 3; }));
  }
}

TEST(Synthetic, RejectsWhatIsNoImage) {
  EXPECT_EQ(rejection([] {
              synthetic_dataset({.sample_shape = {28, 28}});
            }),
            "synthetic: expected a sample shape (H, W, C), got (28, 28)");
  EXPECT_NE(rejection([] { synthetic_dataset({.num_classes = 0}); }).find("1 class"), std::string::npos);
  EXPECT_NE(rejection([] { synthetic_dataset({.size = 0}); }).find("1 sample"), std::string::npos);
}

// Softmax regression by hand over the loader's batches.
class SoftmaxRegression {
 public:
  SoftmaxRegression(std::size_t features, std::size_t classes)
      : features_(features), classes_(classes), weights_(features * classes) {}

  // One step of gradient descent; the mean loss before it.
  double step(const Batch& batch, const DatasetInfo& info, double rate) {
    std::vector<double> gradient(weights_.size());
    double loss = 0;
    for (std::int64_t i = 0; i < batch.count; ++i) {
      const std::vector<double> x = features(batch, i, info);
      std::vector<double> p = probabilities(x);
      const auto label = static_cast<std::size_t>(batch.labels.as<std::int32_t>()[i]);
      loss -= std::log(p[label]);
      p[label] -= 1;
      for (std::size_t k = 0; k < classes_; ++k) {
        for (std::size_t f = 0; f < features_; ++f) gradient[k * features_ + f] += p[k] * x[f];
      }
    }
    const auto count = static_cast<double>(batch.count);
    for (std::size_t w = 0; w < weights_.size(); ++w) weights_[w] -= rate * gradient[w] / count;
    return loss / count;
  }

  bool right(const Batch& batch, std::int64_t i, const DatasetInfo& info) const {
    const std::vector<double> p = probabilities(features(batch, i, info));
    return std::ranges::max_element(p) - p.begin() == batch.labels.as<std::int32_t>()[i];
  }

 private:
  std::vector<double> features(const Batch& batch, std::int64_t i, const DatasetInfo& info) const {
    const std::uint8_t* pixels = batch.samples.as<std::uint8_t>() + i * static_cast<std::int64_t>(features_);
    std::vector<double> x(features_);
    for (std::size_t f = 0; f < features_; ++f) {
      const std::size_t channel = f % info.mean.size();
      x[f] = (pixels[f] / 255.0 - info.mean[channel]) / info.stddev[channel];
    }
    return x;
  }

  std::vector<double> probabilities(const std::vector<double>& x) const {
    std::vector<double> p(classes_);
    for (std::size_t k = 0; k < classes_; ++k) {
      p[k] = std::inner_product(x.begin(), x.end(), weights_.begin() + static_cast<std::ptrdiff_t>(k * features_), 0.0);
    }
    const double largest = *std::ranges::max_element(p);
    double sum = 0;
    for (double& value : p) sum += value = std::exp(value - largest);
    for (double& value : p) value /= sum;
    return p;
  }

  std::size_t features_;
  std::size_t classes_;
  std::vector<double> weights_;
};

TEST(Synthetic, IsLearntAndGeneralises) {
  SyntheticOptions options{.sample_shape = {12, 12, 1}, .num_classes = 10, .size = 640, .seed = test_seed()};
  const auto train = synthetic_dataset(options);
  options.split = Split::test;
  options.size = 200;
  const auto test = synthetic_dataset(options);

  SoftmaxRegression model(144, 10);
  Loader loader(*train, std::make_unique<TrainSampler>(train->size(), BatchSplit{.batch_per_rank = 32}, 0));
  const double first_loss = model.step(loader.next(), train->info(), 0.02);
  EXPECT_NEAR(first_loss, std::log(10.0), 1e-9);
  double loss = first_loss;
  for (int i = 0; i < 60; ++i) loss = model.step(loader.next(), train->info(), 0.02);
  EXPECT_LT(loss, 0.5);

  Loader test_loader(*test, std::make_unique<EvalSampler>(test->size(), 64, 0, 1));
  int right = 0;
  for (const Batch* batch = &test_loader.next(); batch->count > 0; batch = &test_loader.next()) {
    for (std::int64_t i = 0; i < batch->count; ++i) right += model.right(*batch, i, test->info()) ? 1 : 0;
  }
  EXPECT_GT(right, 180);
}

}  // namespace
}  // namespace lockstep
