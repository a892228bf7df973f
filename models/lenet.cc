#include "models/lenet.h"

#include "framework/core/error.h"

namespace lockstep {

LeNet::LeNet(const LeNetConfig& config)
    : conv1_(config.channels, 6, {.kernel = 5, .padding = 2}),
      conv2_(6, 16, {.kernel = 5}),
      fc1_(5 * 5 * 16, 120),
      fc2_(120, 84),
      fc3_(84, config.classes),
      dropout1_(config.dropout),
      dropout2_(config.dropout) {
  register_module("conv1", conv1_);
  register_module("conv2", conv2_);
  register_module("fc1", fc1_);
  register_module("fc2", fc2_);
  register_module("fc3", fc3_);
  register_module("dropout1", dropout1_);
  register_module("dropout2", dropout2_);
}

Tensor LeNet::forward(const Tensor& images) const {
  expect(images.shape().rank() == 4 && images.dim(1) == 28 && images.dim(2) == 28,
         "lenet: expected images (N, 28, 28, C), got {}", images.shape());
  Tensor h = conv1_.forward_relu_max_pool2d(images, 2);  // (N, 14, 14, 6)
  h = conv2_.forward_relu_max_pool2d(h, 2);              // (N, 5, 5, 16)
  h = h.reshape({images.dim(0), 5 * 5 * 16});
  h = dropout1_.forward(fc1_.forward(h, Activation::relu));
  h = dropout2_.forward(fc2_.forward(h, Activation::relu));
  return fc3_.forward(h);
}

}  // namespace lockstep
