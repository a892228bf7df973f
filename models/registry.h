// The models that the command knows by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/nn/module.h"
#include "framework/train/evaluate.h"

namespace lockstep {

struct ModelOptions {
  Shape sample_shape;  // of one sample, without the batch
  std::int64_t classes = 10;
  double dropout = 0.0;
};

struct Model {
  std::unique_ptr<Module> module;
  LogitsFunction logits;  // calls module's forward
};

std::vector<std::string> model_names();

// Throws std::invalid_argument for a name that is unknown (with the nearest known one) and for samples of a shape that
// the model cannot take.
Model make_model(std::string_view name, const ModelOptions& options);

}  // namespace lockstep
