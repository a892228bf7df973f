// VGG: stacks of 3 x 3 convolutions. Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
// Recognition", ICLR 2015, in the form of torchvision: configurations A, B, D and E, without batch norm.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/nn/layers.h"

namespace lockstep {

struct VggConfig {
  int depth = 16;  // layers with weights: 11, 13, 16 or 19
  std::int64_t channels = 3;
  std::int64_t classes = 1000;
  std::int64_t hidden = 4096;  // width of the classifier's two hidden layers
  double dropout = 0.5;        // after each of them
};

// Five stages of convolutions with ReLU, each ending in a 2 x 2 max pooling, then average pooling to 7 x 7 and a
// classifier of three linear layers. Parameters have torchvision's names and initial distributions: filters normal with
// variance 2 / (9 x outputs) (He et al., 2015), linear weights normal with deviation 0.01, biases 0.
// The 7 x 7 x 512 features are flattened as they lie, (H, W, C): columns of classifier.0.weight are in another order
// than torchvision's (C, H, W).
class Vgg : public Module {
 public:
  // Throws std::invalid_argument for another depth.
  explicit Vgg(const VggConfig& config = {});
  // images (N, H, W, channels), H and W at least 32 (224 in the paper) -> logits (N, classes)
  Tensor forward(const Tensor& images) const;

 private:
  std::vector<std::vector<std::unique_ptr<Conv2d>>> stages_;
  Linear fc1_, fc2_, fc3_;
  Dropout dropout1_, dropout2_;
};

}  // namespace lockstep
