#include "framework/nn/layers.h"

#include "framework/core/context.h"
#include "framework/nn/init.h"
#include "framework/ops/conv2d.h"
#include "framework/ops/dropout.h"
#include "framework/ops/embedding.h"
#include "framework/ops/layer_norm.h"
#include "framework/ops/linear.h"

namespace lockstep {
namespace {

Tensor initial_weight(const Shape& shape, std::int64_t fan_in, const std::optional<double>& std) {
  return std ? normal(shape, 0.0, *std) : fan_in_uniform(shape, fan_in);
}

Tensor initial_bias(std::int64_t size, std::int64_t fan_in, const std::optional<double>& std) {
  return std ? constant({size}, 0.0) : fan_in_uniform({size}, fan_in);
}

Tensor value_or_none(const std::shared_ptr<Parameter>& parameter) { return parameter ? parameter->value : Tensor{}; }

}  // namespace

Linear::Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options)
    : weight_(
          register_parameter("weight", initial_weight({out_features, in_features}, in_features, options.std), true)) {
  if (options.bias) bias_ = register_parameter("bias", initial_bias(out_features, in_features, options.std), false);
}

Tensor Linear::forward(const Tensor& x, Activation activation) const {
  return linear(x, weight_->value, value_or_none(bias_), activation);
}

Conv2d::Conv2d(std::int64_t in_channels, std::int64_t out_channels, const Conv2dOptions& options) : options_(options) {
  const std::int64_t fan_in = options.kernel * options.kernel * in_channels;
  weight_ = register_parameter(
      "weight", initial_weight({out_channels, options.kernel, options.kernel, in_channels}, fan_in, options.std), true);
  if (options.bias) bias_ = register_parameter("bias", initial_bias(out_channels, fan_in, options.std), false);
}

Tensor Conv2d::forward(const Tensor& x, Activation activation) const {
  return conv2d(x, weight_->value, value_or_none(bias_), {.stride = options_.stride, .padding = options_.padding},
                activation);
}

Tensor Conv2d::forward_relu_max_pool2d(const Tensor& x, std::int64_t window) const {
  return conv2d_relu_max_pool2d(x, weight_->value, value_or_none(bias_),
                                {.stride = options_.stride, .padding = options_.padding}, window);
}

Dropout::Dropout(double p) : p_(p), stream_(context().next_random_stream()) {}

Tensor Dropout::forward(const Tensor& x) const { return training() ? dropout(x, p_, stream_) : x; }

Embedding::Embedding(std::int64_t count, std::int64_t features, double std)
    : weight_(register_parameter("weight", normal({count, features}, 0.0, std), true)) {}

Tensor Embedding::forward(const Tensor& indices) const { return embedding(weight_->value, indices); }

LayerNorm::LayerNorm(std::int64_t features, double eps)
    : eps_(eps),
      weight_(register_parameter("weight", constant({features}, 1.0), false)),
      bias_(register_parameter("bias", constant({features}, 0.0), false)) {}

Tensor LayerNorm::forward(const Tensor& x) const { return layer_norm(x, weight_->value, bias_->value, eps_); }

}  // namespace lockstep
