// The number of threads changes no bit of any result: every op on sizes that several threads share.
#include <gtest/gtest.h>

#include "framework/core/context.h"
#include "framework/ops/activation.h"
#include "framework/ops/conv2d.h"
#include "framework/ops/dropout.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/embedding.h"
#include "framework/ops/layer_norm.h"
#include "framework/ops/linear.h"
#include "framework/ops/pooling.h"
#include "framework/ops/reduction.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "kernels/gradient_norm.h"
#include "kernels/optimizer.h"
#include "kernels/random.h"
#include "tests/support/op_run.h"
#include "tests/support/seed.h"

namespace lockstep::testing {
namespace {

constexpr std::int64_t kLarge = 100'003;

std::vector<OpCase> large_cases() {
  const auto elementwise = [](const char* name, Tensor (*op)(const Tensor&)) {
    return OpCase{.name = name, .inputs = {{{kLarge}}}, .indices = {}, .forward = [op](const OpArguments& a) {
                    return op(a.inputs[0]);
                  }};
  };
  return {
      elementwise("relu", relu),
      elementwise("gelu_erf", gelu_erf),
      elementwise("gelu_tanh", gelu_tanh),
      elementwise("sum", sum),
      elementwise("mean", mean),
      {.name = "multiply",
       .inputs = {{{kLarge}}, {{kLarge}}},
       .indices = {},
       .forward = [](const OpArguments& a) { return multiply(a.inputs[0], a.inputs[1]); }},
      {.name = "dropout",
       .inputs = {{{101, 1003}}},
       .indices = {},
       .forward = [](const OpArguments& a) { return dropout(a.inputs[0], 0.3, 1); }},
      {.name = "softmax_cross_entropy",
       .inputs = {{{1003, 101}}},
       .indices = {{.shape = {1003}, .limit = 101}},
       .forward =
           [](const OpArguments& a) { return softmax_cross_entropy(scale(a.inputs[0], 1.0), a.indices[0], 0.1); }},
      {.name = "embedding",
       .inputs = {{{101, 1003}}},
       .indices = {{.shape = {303}, .limit = 101}},
       .forward = [](const OpArguments& a) { return embedding(a.inputs[0], a.indices[0]); }},
      {.name = "layer_norm",
       .inputs = {{{1003, 101}}, {{101}}, {{101}}},
       .indices = {},
       .forward = [](const OpArguments& a) { return layer_norm(a.inputs[0], a.inputs[1], a.inputs[2]); }},
      {.name = "linear",
       .inputs = {{{67, 303}}, {{201, 303}}, {{201}}},
       .indices = {},
       .forward = [](const OpArguments& a) { return linear(a.inputs[0], a.inputs[1], a.inputs[2]); }},
      {.name = "linear_of_few_outputs",
       .inputs = {{{1003, 301}}, {{3, 301}}, {{3}}},
       .indices = {},
       .forward = [](const OpArguments& a) { return linear(a.inputs[0], a.inputs[1], a.inputs[2]); }},
      {.name = "conv2d",
       .inputs = {{{37, 14, 14, 6}}, {{16, 5, 5, 6}}, {{16}}},
       .indices = {},
       .forward = [](const OpArguments& a) { return conv2d(a.inputs[0], a.inputs[1], a.inputs[2], {.padding = 1}); }},
      {.name = "max_pool2d",
       .inputs = {{{13, 28, 28, 6}}},
       .indices = {},
       .forward =
           [](const OpArguments& a) {
             return max_pool2d(a.inputs[0], {3, 2, 1});
           }},
      {.name = "avg_pool2d",
       .inputs = {{{13, 28, 28, 6}}},
       .indices = {},
       .forward =
           [](const OpArguments& a) {
             return avg_pool2d(a.inputs[0], {3, 2, 1});
           }},
  };
}

// body's results with 2, 3 and 5 threads must be those with one.
template <class Body>
void expect_same_with_any_threads(const std::string& what, Body body) {
  const auto with_threads = [&](int threads) {
    Context context(DeviceType::cpu, threads);
    const ContextScope scope(context);
    return body(context.exec());
  };
  const auto expected = with_threads(1);
  for (const int threads : {2, 3, 5}) EXPECT_TRUE(with_threads(threads) == expected) << what << ", " << threads;
}

TEST(Threads, OpsGiveTheSameBits) {
  for (const OpCase& op_case : large_cases()) {
    const OpValues values = draw_values(op_case, test_seed());
    for (const DType dtype : {DType::f32, DType::f64}) {
      expect_same_with_any_threads(op_case.name, [&](const ExecContext&) {
        OpResult result = run_backward(op_case, values, dtype);
        result.gradients.push_back(result.output);
        return result.gradients;
      });
    }
  }
}

TEST(Threads, FillsGiveTheSameBits) {
  expect_same_with_any_threads("fill_uniform", [](const ExecContext& exec) {
    const Tensor x = Tensor::empty({kLarge}, DType::f32);
    kernels::cpu::fill_uniform(exec, x, 0, 1, test_seed(), 0);
    return x.to_host<float>();
  });
  expect_same_with_any_threads("fill_normal", [](const ExecContext& exec) {
    const Tensor x = Tensor::empty({kLarge}, DType::f32);
    kernels::cpu::fill_normal(exec, x, 0, 1, test_seed(), 0);
    return x.to_host<float>();
  });
}

TEST(Threads, UpdatesGiveTheSameBits) {
  const kernels::StepScalars scalars{.learning_rate = 0.1, .step = 3};
  const std::int64_t chunks = (kLarge + kernels::kDecayChunk - 1) / kernels::kDecayChunk;
  const auto updated = [&](const ExecContext& exec, auto update) {
    Tensor tensors[4];
    for (std::uint32_t i = 0; i < 4; ++i) {
      tensors[i] = Tensor::empty({kLarge}, DType::f32);
      kernels::cpu::fill_uniform(exec, tensors[i], 0, 1, test_seed(), i);
    }
    const Tensor decay = Tensor::zeros({chunks}, DType::u8);
    update(kernels::UpdateRange{tensors[0], tensors[1], decay, nullptr, &scalars}, tensors[2], tensors[3]);
    return tensors[0].to_host<float>();
  };
  expect_same_with_any_threads("sgd_step", [&](const ExecContext& exec) {
    return updated(exec, [&](const kernels::UpdateRange& range, View first, View) {
      kernels::cpu::sgd_step(exec, range, first, {.momentum = 0.9, .weight_decay = 0.1});
    });
  });
  expect_same_with_any_threads("adamw_step", [&](const ExecContext& exec) {
    return updated(exec, [&](const kernels::UpdateRange& range, View first, View second) {
      kernels::cpu::adamw_step(exec, range, first, second, {});
    });
  });
}

TEST(Threads, GradientNormGivesTheSameBits) {
  const std::int64_t blocks = 5;
  expect_same_with_any_threads("sum_of_squares", [&](const ExecContext& exec) {
    const Tensor gradients = Tensor::empty({blocks * kernels::kNormBlock - 3}, DType::f32);
    kernels::cpu::fill_normal(exec, gradients, 0, 1, test_seed(), 0);
    const Tensor partials = Tensor::empty({blocks}, DType::f64);
    kernels::cpu::sum_of_squares(exec, gradients, partials);
    return partials.to_host<double>();
  });
}

}  // namespace
}  // namespace lockstep::testing
