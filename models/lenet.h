// LeNet-5 with ReLU and max pooling, after LeCun et al., "Gradient-based learning applied to document recognition",
// 1998.
#pragma once

#include <cstdint>

#include "framework/nn/layers.h"

namespace lockstep {

struct LeNetConfig {
  std::int64_t channels = 1;
  std::int64_t classes = 10;
  double dropout = 0.0;  // after each of the two hidden linear layers
};

class LeNet : public Module {
 public:
  explicit LeNet(const LeNetConfig& config = {});
  // images (N, 28, 28, channels) -> logits (N, classes)
  Tensor forward(const Tensor& images) const;

 private:
  Conv2d conv1_, conv2_;
  Linear fc1_, fc2_, fc3_;
  Dropout dropout1_, dropout2_;
};

}  // namespace lockstep
