#include "kernels/linear.h"

#include <compare>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "kernels/cuda/bias.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cublaslt.h"
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

// The product for the gradient of the weight, which can give that of the bias on the way.
cuda::Matmul weight_product(const ConstView& dy, const ConstView& x, const GradView& dweight) {
  return {.rows = dy.shape[1],
          .columns = x.shape[1],
          .depth = dy.shape[0],
          .a = {.data = dy.data, .dtype = dy.dtype, .transposed = true},
          .b = {.data = x.data, .dtype = x.dtype},
          .out = dweight.view,
          .accumulate = dweight.accumulate};
}

void separate_gradients(const ExecContext& exec, const ConstView& dy, const ConstView& x, const GradView& dweight,
                        const GradView& dbias) {
  if (dweight) {
    const cuda::Matmul product = weight_product(dy, x, dweight);
    expect_done(run_product(exec, product), product);
  }
  if (dbias) cuda::bias_gradient(exec, dy, dbias);
}

void fused_gradients(const ExecContext& exec, const ConstView& dy, const ConstView& x, const GradView& dweight,
                     const GradView& dbias) {
  cuda::Matmul product = weight_product(dy, x, dweight);
  product.epilogue = cuda::Epilogue::bias_gradient;
  product.bias = dbias.view.data;
  expect_done(run_product(exec, product), product);
}

struct FusionKey {
  int device;
  std::int64_t rows, outputs, inputs;
  DType activations, gradients;
  bool tf32;
  auto operator<=>(const FusionKey&) const = default;
};

// Whether one product with both gradients is faster than a product and a sum over columns: found out once.
bool fusing_pays(const ExecContext& exec, const ConstView& dy, const ConstView& x, const GradView& dweight,
                 const GradView& dbias) {
  if (!dweight || !dbias || dweight.accumulate || dbias.accumulate || dweight.view.dtype != dbias.view.dtype ||
      dy.numel() == 0 || x.numel() == 0 || exec.deterministic) {
    return false;
  }
  static std::mutex mutex;
  static std::map<FusionKey, bool> known;
  FusionKey key{.device = 0,
                .rows = dy.shape[0],
                .outputs = dy.shape[1],
                .inputs = x.shape[1],
                .activations = x.dtype,
                .gradients = dweight.view.dtype,
                .tf32 = exec.allow_tf32};
  LOCKSTEP_CUDA_CHECK(cudaGetDevice(&key.device));
  const std::lock_guard lock(mutex);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  const std::string problem = std::string("linear gradients ") + dtype_name(key.activations) + " to " +
                              dtype_name(key.gradients) + " " + dy.shape.to_string() + " " + x.shape.to_string() +
                              (key.tf32 ? " tf32" : "");
  const int choice =
      cuda::choose(exec, problem,
                   {.count = 2,
                    .run =
                        [&](int candidate, const ExecContext& own) {
                          (candidate == 0 ? separate_gradients : fused_gradients)(own, dy, x, dweight, dbias);
                        },
                    .name = [](int candidate) { return candidate == 0 ? "apart" : "fused"; }},
                   {dweight, dbias});
  const bool fuse = choice == 1;
  known.emplace(key, fuse);
  return fuse;
}

}  // namespace

void cuda::linear_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias, Activation activation,
                          View y) {
  Matmul product{.rows = y.shape[0],
                 .columns = y.shape[1],
                 .depth = x.shape[1],
                 .a = {.data = x.data, .dtype = x.dtype},
                 .b = {.data = weight.data, .dtype = weight.dtype, .transposed = true},
                 .out = y};
  const bool has_relu = activation == Activation::relu;
  if (bias.data == nullptr) {
    expect_done(run_product(exec, product), product);
    if (has_relu) relu_forward(exec, y, y);
    return;
  }
  product.epilogue = has_relu ? Epilogue::bias_relu : Epilogue::bias;
  product.bias = const_cast<void*>(bias.data);
  if (run_product(exec, product)) return;
  product.epilogue = Epilogue::none;
  expect_done(run_product(exec, product), product);
  add_bias(exec, bias, activation, y);
}

void cuda::linear_backward(const ExecContext& exec, ConstView dy, ConstView x, ConstView weight, GradView dx,
                           GradView dweight, GradView dbias) {
  if (dx) {
    const Matmul product = {.rows = dy.shape[0],
                            .columns = weight.shape[1],
                            .depth = weight.shape[0],
                            .a = {.data = dy.data, .dtype = dy.dtype},
                            .b = {.data = weight.data, .dtype = weight.dtype},
                            .out = dx.view,
                            .accumulate = dx.accumulate};
    expect_done(run_product(exec, product), product);
    if (dx.unrectified != nullptr) *dx.unrectified = true;
  }
  (fusing_pays(exec, dy, x, dweight, dbias) ? fused_gradients : separate_gradients)(exec, dy, x, dweight, dbias);
}

}  // namespace lockstep::kernels
