#include "models/vgg.h"

#include <array>
#include <cmath>
#include <string>

#include "framework/core/error.h"
#include "framework/ops/pooling.h"

namespace lockstep {
namespace {

constexpr std::array<std::int64_t, 5> kWidths = {64, 128, 256, 512, 512};
constexpr std::int64_t kPooled = 7;
constexpr std::int64_t kLeastSide = 32;  // halved five times
constexpr LinearOptions kLinear = {.std = 0.01};

// Convolutions of each stage.
std::array<int, 5> stages_of(int depth) {
  switch (depth) {
    case 11:
      return {1, 1, 2, 2, 2};
    case 13:
      return {2, 2, 2, 2, 2};
    case 16:
      return {2, 2, 3, 3, 3};
    case 19:
      return {2, 2, 4, 4, 4};
    default:
      expect(false, "vgg: expected a depth of 11, 13, 16 or 19, got {}", depth);
      return {};
  }
}

}  // namespace

Vgg::Vgg(const VggConfig& config)
    : fc1_(kPooled * kPooled * kWidths.back(), config.hidden, kLinear),
      fc2_(config.hidden, config.hidden, kLinear),
      fc3_(config.hidden, config.classes, kLinear),
      dropout1_(config.dropout),
      dropout2_(config.dropout) {
  const std::array<int, 5> stages = stages_of(config.depth);
  std::int64_t inputs = config.channels;
  int place = 0;  // in torchvision's sequence, where ReLU and pooling are modules too
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const std::int64_t width = kWidths[stage];
    const double std = std::sqrt(2.0 / static_cast<double>(9 * width));
    auto& convs = stages_.emplace_back();
    for (int i = 0; i < stages[stage]; ++i) {
      convs.push_back(std::make_unique<Conv2d>(inputs, width, Conv2dOptions{.kernel = 3, .padding = 1, .std = std}));
      register_module("features." + std::to_string(place), *convs.back());
      inputs = width;
      place += 2;
    }
    ++place;
  }
  register_module("classifier.0", fc1_);
  register_module("classifier.2", dropout1_);
  register_module("classifier.3", fc2_);
  register_module("classifier.5", dropout2_);
  register_module("classifier.6", fc3_);
}

Tensor Vgg::forward(const Tensor& images) const {
  expect(images.shape().rank() == 4 && images.dim(1) >= kLeastSide && images.dim(2) >= kLeastSide,
         "vgg: expected images (N, H, W, C) of at least {} x {} pixels, got {}", kLeastSide, kLeastSide,
         images.shape());
  Tensor h = images;
  for (const auto& convs : stages_) {
    for (std::size_t i = 0; i + 1 < convs.size(); ++i) h = convs[i]->forward(h, Activation::relu);
    h = convs.back()->forward_relu_max_pool2d(h, 2);
  }
  h = adaptive_avg_pool2d(h, kPooled, kPooled).reshape({images.dim(0), kPooled * kPooled * kWidths.back()});
  h = dropout1_.forward(fc1_.forward(h, Activation::relu));
  h = dropout2_.forward(fc2_.forward(h, Activation::relu));
  return fc3_.forward(h);
}

}  // namespace lockstep
