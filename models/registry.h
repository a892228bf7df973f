// The models that the command knows by name.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/nn/module.h"
#include "framework/train/evaluate.h"

namespace lockstep {

// What a model is fed with: for made-up data, and to tell whether other data fit.
struct ModelInput {
  Shape sample_shape;  // of one sample, without the batch
  int classes;

  bool operator==(const ModelInput&) const = default;
};

struct ModelOptions {
  Shape sample_shape;
  std::int64_t classes = 10;
  std::optional<double> dropout = {};  // default: the model's own
};

struct Model {
  std::unique_ptr<Module> module;
  LogitsFunction logits;  // calls module's forward
};

// All of these throw std::invalid_argument for a name that is unknown, with the nearest known one.

std::vector<std::string> model_names();

// What the model was made for: Fashion-MNIST's images for mlp and lenet, ImageNet's for the others.
ModelInput usual_input(std::string_view name);

// Throws std::invalid_argument for samples of a shape that the model cannot take.
void expect_model_takes(std::string_view name, const Shape& sample_shape);

// Throws std::invalid_argument as expect_model_takes does.
Model make_model(std::string_view name, const ModelOptions& options);

}  // namespace lockstep
