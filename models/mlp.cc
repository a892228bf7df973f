#include "models/mlp.h"

#include <string>

#include "framework/core/error.h"

namespace lockstep {

Mlp::Mlp(const MlpConfig& config) {
  std::int64_t width = config.inputs;
  for (const std::int64_t next : config.hidden) {
    layers_.push_back(std::make_unique<Linear>(width, next));
    dropouts_.push_back(std::make_unique<Dropout>(config.dropout));
    width = next;
  }
  layers_.push_back(std::make_unique<Linear>(width, config.classes));
  for (std::size_t i = 0; i < layers_.size(); ++i) register_module("layers." + std::to_string(i), *layers_[i]);
  for (std::size_t i = 0; i < dropouts_.size(); ++i) register_module("dropouts." + std::to_string(i), *dropouts_[i]);
}

Tensor Mlp::forward(const Tensor& x) const {
  expect(x.shape().rank() >= 1 && x.dim(0) > 0, "mlp: expected at least one sample, got {}", x.shape());
  Tensor h = x.reshape({x.dim(0), x.numel() / x.dim(0)});
  for (std::size_t i = 0; i < dropouts_.size(); ++i)
    h = dropouts_[i]->forward(layers_[i]->forward(h, Activation::relu));
  return layers_.back()->forward(h);
}

}  // namespace lockstep
