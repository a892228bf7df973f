#include "models/vgg.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "framework/core/context.h"
#include "models/registry.h"
#include "tests/support/random.h"

namespace lockstep::testing {
namespace {

std::int64_t parameters_of(Module& model) {
  std::int64_t count = 0;
  for (const Parameter* parameter : model.parameters()) count += parameter->value.numel();
  return count;
}

Tensor images_of(const Shape& shape) {
  const std::vector<double> values = random_values(shape.numel(), -1, 1);
  return Tensor::from_host<float>(std::vector<float>(values.begin(), values.end()), shape);
}

// torchvision's published numbers.
TEST(Vgg, HasAsManyParametersAsPublished) {
  const ModelInput usual = usual_input("vgg11");
  const Model vgg11 = make_model("vgg11", {.sample_shape = usual.sample_shape, .classes = usual.classes});
  EXPECT_EQ(parameters_of(*vgg11.module), 132863336);
  // The others have the same classifier, whose many parameters are not drawn again.
  const auto with_narrow_classifier = [](int depth) {
    Vgg model({.depth = depth, .hidden = 1});
    return parameters_of(model);
  };
  const std::map<int, std::int64_t> published = {{13, 133047848}, {16, 138357544}, {19, 143667240}};
  for (const auto& [depth, count] : published) {
    EXPECT_EQ(with_narrow_classifier(depth) - with_narrow_classifier(11), count - 132863336) << depth;
  }
}

TEST(Vgg, HasTorchvisionsNames) {
  Vgg model({.depth = 11, .classes = 3, .hidden = 2});
  std::vector<std::string> names;
  for (const Parameter* parameter : model.parameters()) names.push_back(parameter->name);
  std::vector<std::string> expected;
  for (const char* layer : {"features.0", "features.3", "features.6", "features.8", "features.11", "features.13",
                            "features.16", "features.18", "classifier.0", "classifier.3", "classifier.6"}) {
    for (const char* part : {".weight", ".bias"}) expected.push_back(std::string(layer) + part);
  }
  EXPECT_EQ(names, expected);
}

TEST(Vgg, StartsWithTorchvisionsDistributions) {
  Context context(DeviceType::cpu);
  context.random.seed = test_seed();
  const ContextScope scope(context);
  Vgg model({.depth = 11, .classes = 100, .hidden = 100});
  for (const Parameter* parameter : model.parameters()) {
    const std::vector<float> values = parameter->value.to_host<float>();
    const auto count = static_cast<double>(values.size());
    double sum = 0, squares = 0;
    for (const double value : values) sum += value, squares += value * value;
    const Shape& shape = parameter->value.shape();
    if (shape.rank() == 1) {
      EXPECT_EQ(squares, 0) << parameter->name;
      continue;
    }
    const double std = shape.rank() == 4 ? std::sqrt(2.0 / static_cast<double>(9 * shape[0])) : 0.01;
    EXPECT_NEAR(sum / count, 0, 5 * std / std::sqrt(count)) << parameter->name;
    EXPECT_NEAR(squares / count, std * std, 5 * std * std * std::sqrt(2 / count)) << parameter->name;
  }
}

TEST(Vgg, TakesImagesOfAnySizeFrom32) {
  const Vgg model({.depth = 11, .channels = 2, .classes = 5, .hidden = 8, .dropout = 0});
  for (const Shape& shape : {Shape{2, 32, 32, 2}, Shape{1, 33, 70, 2}, Shape{1, 260, 32, 2}}) {
    EXPECT_EQ(model.forward(images_of(shape)).shape(), Shape({shape[0], 5}));
  }
  for (const Shape& shape : {Shape{2, 31, 32, 2}, Shape{2, 32, 31, 2}, Shape{2, 32, 32, 1}, Shape{32, 32, 2}}) {
    EXPECT_THROW(model.forward(images_of(shape)), std::invalid_argument) << shape.to_string();
  }
  EXPECT_THROW(Vgg({.depth = 12}), std::invalid_argument);
}

TEST(Vgg, DropsOutInTrainingOnly) {
  Vgg model({.depth = 11, .classes = 5, .hidden = 8});
  const Tensor images = images_of({1, 32, 32, 3});
  const auto logits_at = [&](std::uint64_t step) {
    context().random.step = step;
    return model.forward(images).to_host<float>();
  };
  bool differ = false;
  for (std::uint64_t step = 1; step < 20; ++step) differ = differ || logits_at(step) != logits_at(0);
  EXPECT_TRUE(differ);
  model.train(false);
  EXPECT_EQ(logits_at(1), logits_at(0));
}

}  // namespace
}  // namespace lockstep::testing
