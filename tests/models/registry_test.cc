#include "models/registry.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "framework/core/context.h"
#include "tests/support/random.h"

namespace lockstep::testing {
namespace {

TEST(Registry, EveryModelTakesItsUsualInput) {
  for (const std::string& name : model_names()) {
    const ModelInput usual = usual_input(name);
    EXPECT_NO_THROW(expect_model_takes(name, usual.sample_shape));
    EXPECT_GE(usual.classes, 10);
  }
  EXPECT_EQ(usual_input("vgg19").sample_shape, Shape({224, 224, 3}));
  EXPECT_EQ(usual_input("lenet").sample_shape, Shape({28, 28, 1}));
}

TEST(Registry, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(usual_input("vgg12"), std::invalid_argument);
  EXPECT_THROW(make_model("vgg", {.sample_shape = {32, 32, 3}}), std::invalid_argument);
  EXPECT_THROW(make_model("lenet", {.sample_shape = {32, 32, 1}}), std::invalid_argument);
  EXPECT_THROW(make_model("lenet", {.sample_shape = {28 * 28}}), std::invalid_argument);
  EXPECT_THROW(make_model("vgg11", {.sample_shape = {31, 32, 3}}), std::invalid_argument);
}

TEST(Registry, DropoutIsTheModelsOwnUnlessGiven) {
  const Shape image = {28, 28, 1};
  const std::vector<float> pixels = random_values<float>(2 * image.numel(), 0, 1);
  const Tensor images = Tensor::from_host<float>(pixels, {2, 28, 28, 1});
  for (const std::string name : {"mlp", "lenet"}) {
    for (const bool drop : {false, true}) {
      ModelOptions options{.sample_shape = image};
      if (drop) options.dropout = 0.5;
      const Model model = make_model(name, options);
      const auto logits_at = [&](std::uint64_t step) {
        context().random.step = step;
        return model.logits(images).to_host<float>();
      };
      EXPECT_EQ(logits_at(0) != logits_at(1), drop) << name;
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
