// Products by cuBLASLt, or tiles of our own where the batch is small: the plan phase times both.
#include "kernels/linear.h"

#include <compare>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/bias.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/linear_tiles.h"
#include "kernels/cuda/plan.h"
#include "kernels/elementwise.h"

namespace lockstep::kernels {
namespace {

// False where cuBLASLt has no algorithm. A sum of nothing is 0.
bool run_product(const ExecContext& exec, const cuda::Matmul& product) {
  if (product.out.numel() == 0) return true;
  if (product.depth > 0) return cuda::matmul(exec, product);
  if (product.epilogue != cuda::Epilogue::none) return false;
  if (!product.accumulate) cuda::fill(exec, product.out, 0);
  return true;
}

void expect_done(bool done, const cuda::Matmul& product) {
  if (!done) {
    throw std::runtime_error("linear: expected a product that cuBLASLt has an algorithm for, got " +
                             std::string(dtype_name(product.a.dtype)) + " to " + dtype_name(product.out.dtype) + " " +
                             product.out.shape.to_string() + " of depth " + std::to_string(product.depth));
  }
}

// Tiles of our own, or else products of cuBLASLt.
struct Algorithm {
  std::optional<cuda::Tiling> tiling;
  bool fused = false;  // backward by cuBLASLt: the bias gradient is in the epilogue of the weight's

  std::string name() const {
    if (tiling) return std::string(cuda::tiling_name(*tiling)) + " tiles";
    return fused ? "cublaslt fused" : "cublaslt";
  }
};

void add_tilings(const ConstView& x, const ConstView& weight, std::vector<Algorithm>& algorithms) {
  for (const cuda::Tiling tiling : cuda::linear_tilings(x, weight.shape)) algorithms.push_back({.tiling = tiling});
}

struct Forward {
  ConstView x, weight, bias;
  Activation activation;
  View y;

  std::vector<Algorithm> algorithms() const {
    std::vector<Algorithm> found = {{}};
    add_tilings(x, weight, found);
    return found;
  }

  void run(const ExecContext& exec, const Algorithm& algorithm) const {
    const bool has_relu = activation == Activation::relu;
    if (algorithm.tiling) {
      return cuda::linear_tiles_forward(exec, x, weight, bias, has_relu, y, *algorithm.tiling);
    }
    cuda::Matmul product{.rows = y.shape[0],
                         .columns = y.shape[1],
                         .depth = x.shape[1],
                         .a = {.data = x.data, .dtype = x.dtype},
                         .b = {.data = weight.data, .dtype = weight.dtype, .transposed = true},
                         .out = y};
    if (bias.data == nullptr) {
      expect_done(run_product(exec, product), product);
      if (has_relu) cuda::relu_forward(exec, y, y);
      return;
    }
    product.epilogue = has_relu ? cuda::Epilogue::bias_relu : cuda::Epilogue::bias;
    product.bias = const_cast<void*>(bias.data);
    if (run_product(exec, product)) return;
    product.epilogue = cuda::Epilogue::none;
    expect_done(run_product(exec, product), product);
    cuda::add_bias(exec, bias, activation, y);
  }

  void try_out(const ExecContext& exec, const Algorithm& algorithm) const { run(exec, algorithm); }
};

struct Backward {
  ConstView dy, x, weight;
  GradView dx, dweight, dbias;

  std::vector<Algorithm> algorithms() const {
    std::vector<Algorithm> found = {{}};
    const bool both = dweight && dbias;
    if (both && !dweight.accumulate && !dbias.accumulate && dweight.view.dtype == dbias.view.dtype && dy.numel() > 0 &&
        x.numel() > 0) {
      found.push_back({.fused = true});
    }
    if ((both || !dbias) && dy.numel() > 0) add_tilings(x, weight, found);
    return found;
  }

  void run(const ExecContext& exec, const Algorithm& algorithm) const {
    if (algorithm.tiling) {
      return cuda::linear_tiles_backward(exec, dy, x, weight, dx, dweight, dbias, *algorithm.tiling);
    }
    if (dx) {
      const cuda::Matmul product = {.rows = dy.shape[0],
                                    .columns = weight.shape[1],
                                    .depth = weight.shape[0],
                                    .a = {.data = dy.data, .dtype = dy.dtype},
                                    .b = {.data = weight.data, .dtype = weight.dtype},
                                    .out = dx.view,
                                    .accumulate = dx.accumulate};
      expect_done(run_product(exec, product), product);
      if (dx.unrectified != nullptr) *dx.unrectified = true;
    }
    if (dweight) {
      cuda::Matmul product = {.rows = dy.shape[1],
                              .columns = x.shape[1],
                              .depth = dy.shape[0],
                              .a = {.data = dy.data, .dtype = dy.dtype, .transposed = true},
                              .b = {.data = x.data, .dtype = x.dtype},
                              .out = dweight.view,
                              .accumulate = dweight.accumulate};
      if (algorithm.fused) {
        product.epilogue = cuda::Epilogue::bias_gradient;
        product.bias = dbias.view.data;
      }
      expect_done(run_product(exec, product), product);
    }
    if (dbias && !algorithm.fused) cuda::bias_gradient(exec, dy, dbias);
  }

  // What is to be timed: with what is left to the ReLU that made x where its gradient was not rectified.
  void try_out(const ExecContext& exec, const Algorithm& algorithm) const {
    bool unrectified = false;
    Backward own = *this;
    if (dx.unrectified != nullptr) own.dx.unrectified = &unrectified;
    own.run(exec, algorithm);
    if (unrectified) cuda::relu_backward(exec, dx.view, x, {dx.view, false});
  }
};

// What a choice depends on, and which algorithms there are to choose from.
struct Key {
  bool backward;
  int device;
  std::int64_t rows, inputs, outputs;
  DType dtype, gradients;
  bool bias, relu, to_x, to_weight, rectify, adds_to_x, adds_to_weight, adds_to_bias, tf32, deterministic;
  auto operator<=>(const Key&) const = default;

  std::string text() const {
    return std::string("linear ") + (backward ? "backward " : "forward ") + dtype_name(dtype) +
           (backward ? std::string(" to ") + dtype_name(gradients) : "") + " (" + std::to_string(rows) + ", " +
           std::to_string(inputs) + ", " + std::to_string(outputs) + ")" + (bias ? " bias" : "") +
           (relu ? " relu" : "") + (to_x ? " dx" : "") + (to_weight ? " dweight" : "") + (rectify ? " rectify" : "") +
           (adds_to_x ? " +dx" : "") + (adds_to_weight ? " +dweight" : "") + (adds_to_bias ? " +dbias" : "") +
           (tf32 ? " tf32" : "") + (deterministic ? " deterministic" : "");
  }
};

Key key_of(const ExecContext& exec, const ConstView& x, const Shape& weight) {
  Key key{.backward = false,
          .device = 0,
          .rows = x.shape[0],
          .inputs = weight[1],
          .outputs = weight[0],
          .dtype = x.dtype,
          .gradients = x.dtype,
          .bias = false,
          .relu = false,
          .to_x = false,
          .to_weight = false,
          .rectify = false,
          .adds_to_x = false,
          .adds_to_weight = false,
          .adds_to_bias = false,
          .tf32 = exec.allow_tf32,
          .deterministic = exec.deterministic};
  LOCKSTEP_CUDA_CHECK(cudaGetDevice(&key.device));
  return key;
}

// The fastest, found out when a problem is met for the first time.
template <class Pass>
Algorithm chosen(const ExecContext& exec, const Key& key, const Pass& pass, cuda::Targets targets) {
  static std::mutex mutex;
  static std::map<Key, Algorithm> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  const std::vector<Algorithm> algorithms = pass.algorithms();
  if (algorithms.size() == 1) return algorithms.front();
  const auto algorithm = [&](int candidate) { return algorithms[static_cast<std::size_t>(candidate)]; };
  const int choice =
      cuda::choose(exec, key.text(),
                   {.count = static_cast<int>(algorithms.size()),
                    .run = [&](int candidate, const ExecContext& own) { pass.try_out(own, algorithm(candidate)); },
                    .name = [&](int candidate) { return algorithm(candidate).name(); }},
                   targets);
  return known.emplace(key, algorithm(choice)).first->second;
}

}  // namespace

void cuda::linear_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias, Activation activation,
                          View y) {
  const Forward pass = {x, weight, bias, activation, y};
  Key key = key_of(exec, x, weight.shape);
  key.bias = bias.data != nullptr;
  key.relu = activation == Activation::relu;
  pass.run(exec, chosen(exec, key, pass, {{y, false}}));
}

void cuda::linear_backward(const ExecContext& exec, ConstView dy, ConstView x, ConstView weight, GradView dx,
                           GradView dweight, GradView dbias) {
  const Backward pass = {dy, x, weight, dx, dweight, dbias};
  Key key = key_of(exec, x, weight.shape);
  key.backward = true;
  key.gradients = dweight ? dweight.view.dtype : key.dtype;
  key.bias = static_cast<bool>(dbias);
  key.to_x = static_cast<bool>(dx);
  key.to_weight = static_cast<bool>(dweight);
  key.rectify = dx.unrectified != nullptr;
  key.adds_to_x = dx.accumulate;
  key.adds_to_weight = dweight.accumulate;
  key.adds_to_bias = dbias.accumulate;
  pass.run(exec, chosen(exec, key, pass, {dx, dweight, dbias}));
}

}  // namespace lockstep::kernels
