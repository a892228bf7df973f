// Multi-layer perceptron: linear layers with ReLU between them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/nn/layers.h"

namespace lockstep {

struct MlpConfig {
  std::int64_t inputs = 784;
  std::vector<std::int64_t> hidden = {512, 512};
  std::int64_t classes = 10;
  double dropout = 0.0;  // after each hidden layer
};

class Mlp : public Module {
 public:
  explicit Mlp(const MlpConfig& config = {});
  // x (N, ...) of `inputs` elements a sample -> logits (N, classes)
  Tensor forward(const Tensor& x) const;

 private:
  std::vector<std::unique_ptr<Linear>> layers_;
  std::vector<std::unique_ptr<Dropout>> dropouts_;
};

}  // namespace lockstep
