// The modules that models are made of. Each holds its parameters and calls one op; shapes and errors are the op's.
#pragma once

#include <memory>
#include <optional>

#include "framework/nn/module.h"
#include "framework/ops/activation.h"

namespace lockstep {

struct LinearOptions {
  bool bias = true;
  std::optional<double> std = {};  // weight from N(0, std), bias 0; without it both as torch.nn.Linear's
};

// x (..., C) -> (..., O). Parameters: weight (O, C), bias (O).
class Linear : public Module {
 public:
  Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options = {});
  Tensor forward(const Tensor& x, Activation activation = Activation::none) const;

 private:
  std::shared_ptr<Parameter> weight_, bias_;
};

struct Conv2dOptions {
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool bias = true;
  std::optional<double> std = {};  // weight from N(0, std), bias 0; without it both as torch.nn.Conv2d's
};

// x (N, H, W, C) -> (N, OH, OW, O). Parameters: weight (O, KH, KW, C), bias (O).
class Conv2d : public Module {
 public:
  Conv2d(std::int64_t in_channels, std::int64_t out_channels, const Conv2dOptions& options);
  Tensor forward(const Tensor& x, Activation activation = Activation::none) const;
  // -> (N, OH / window, OW / window, O), by conv2d_relu_max_pool2d.
  Tensor forward_relu_max_pool2d(const Tensor& x, std::int64_t window) const;

 private:
  Conv2dOptions options_;
  std::shared_ptr<Parameter> weight_, bias_;
};

// Zeroes each element with probability p in training and scales the others by 1 / (1 - p); the identity in evaluation.
class Dropout : public Module {
 public:
  explicit Dropout(double p);
  Tensor forward(const Tensor& x) const;

 private:
  double p_;
  std::uint32_t stream_;
};

// indices (...) i32 -> (..., C). Parameter: weight (V, C), drawn from N(0, std).
class Embedding : public Module {
 public:
  Embedding(std::int64_t count, std::int64_t features, double std = 1.0);
  Tensor forward(const Tensor& indices) const;
  const std::shared_ptr<Parameter>& weight() const { return weight_; }  // to tie an output layer to

 private:
  std::shared_ptr<Parameter> weight_;
};

// Normalises the last dimension. Parameters: weight (C) = 1, bias (C) = 0, neither decayed.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(std::int64_t features, double eps = 1e-5);
  Tensor forward(const Tensor& x) const;

 private:
  double eps_;
  std::shared_ptr<Parameter> weight_, bias_;
};

}  // namespace lockstep
