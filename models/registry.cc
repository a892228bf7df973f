#include "models/registry.h"

#include "framework/core/error.h"
#include "framework/core/nearest_name.h"
#include "models/lenet.h"
#include "models/mlp.h"

namespace lockstep {
namespace {

template <class M>
Model wrap(std::unique_ptr<M> module) {
  auto logits = [model = module.get()](const Tensor& samples) { return model->forward(samples); };
  return {std::move(module), logits};
}

Model make_mlp(const ModelOptions& options) {
  return wrap(std::make_unique<Mlp>(
      MlpConfig{.inputs = options.sample_shape.numel(), .classes = options.classes, .dropout = options.dropout}));
}

Model make_lenet(const ModelOptions& options) {
  const Shape& shape = options.sample_shape;
  expect(shape.rank() == 3 && shape[0] == 28 && shape[1] == 28, "lenet: expected images of 28 x 28 pixels, got {}",
         shape);
  return wrap(std::make_unique<LeNet>(
      LeNetConfig{.channels = shape[2], .classes = options.classes, .dropout = options.dropout}));
}

struct Entry {
  const char* name;
  Model (*make)(const ModelOptions&);
};
constexpr Entry kModels[] = {{"lenet", make_lenet}, {"mlp", make_mlp}};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kModels) names.emplace_back(entry.name);
  return names;
}

Model make_model(std::string_view name, const ModelOptions& options) {
  for (const Entry& entry : kModels) {
    if (entry.name == name) return entry.make(options);
  }
  expect_known("model", name, model_names());
  return {};
}

}  // namespace lockstep
