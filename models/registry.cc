#include "models/registry.h"

#include <algorithm>

#include "framework/core/error.h"
#include "framework/core/nearest_name.h"
#include "models/lenet.h"
#include "models/mlp.h"
#include "models/vgg.h"

namespace lockstep {
namespace {

template <class M, class Config>
Model wrap(const Config& config) {
  auto module = std::make_unique<M>(config);
  auto logits = [model = module.get()](const Tensor& samples) { return model->forward(samples); };
  return {std::move(module), logits};
}

Model make_mlp(const ModelOptions& options) {
  MlpConfig config{.inputs = options.sample_shape.numel(), .classes = options.classes};
  config.dropout = options.dropout.value_or(config.dropout);
  return wrap<Mlp>(config);
}

Model make_lenet(const ModelOptions& options) {
  LeNetConfig config{.channels = options.sample_shape[2], .classes = options.classes};
  config.dropout = options.dropout.value_or(config.dropout);
  return wrap<LeNet>(config);
}

template <int kDepth>
Model make_vgg(const ModelOptions& options) {
  VggConfig config{.depth = kDepth, .channels = options.sample_shape[2], .classes = options.classes};
  config.dropout = options.dropout.value_or(config.dropout);
  return wrap<Vgg>(config);
}

struct Entry {
  const char* name;
  ModelInput usual;
  const char* takes;  // in words
  bool (*fits)(const Shape& sample_shape);
  Model (*make)(const ModelOptions&);
};

template <int kDepth>
Entry vgg_entry(const char* name) {
  return {name,
          {{224, 224, 3}, 1000},
          "images of at least 32 x 32 pixels",
          [](const Shape& s) { return s.rank() == 3 && s[0] >= 32 && s[1] >= 32; },
          make_vgg<kDepth>};
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> models = {
      {"lenet",
       {{28, 28, 1}, 10},
       "images of 28 x 28 pixels",
       [](const Shape& s) { return s.rank() == 3 && s[0] == 28 && s[1] == 28; },
       make_lenet},
      {"mlp", {{28, 28, 1}, 10}, "samples of any shape", [](const Shape&) { return true; }, make_mlp},
      vgg_entry<11>("vgg11"),
      vgg_entry<13>("vgg13"),
      vgg_entry<16>("vgg16"),
      vgg_entry<19>("vgg19"),
  };
  return models;
}

const Entry& entry_of(std::string_view name) {
  expect_known("model", name, model_names());
  return *std::ranges::find(entries(), name, &Entry::name);
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) names.emplace_back(entry.name);
  return names;
}

ModelInput usual_input(std::string_view name) { return entry_of(name).usual; }

void expect_model_takes(std::string_view name, const Shape& sample_shape) {
  const Entry& entry = entry_of(name);
  expect(entry.fits(sample_shape), "{}: expected {}, got {}", name, entry.takes, sample_shape);
}

Model make_model(std::string_view name, const ModelOptions& options) {
  expect_model_takes(name, options.sample_shape);
  return entry_of(name).make(options);
}

}  // namespace lockstep
