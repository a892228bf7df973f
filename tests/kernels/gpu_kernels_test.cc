// Kernels that are no rows of the op table, on a GPU against the CPU in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/device_value.h"
#include "framework/core/gpu.h"
#include "framework/core/tensor.h"
#include "kernels/dispatch.h"
#include "kernels/elementwise.h"
#include "kernels/gradient_norm.h"
#include "kernels/image.h"
#include "kernels/optimizer.h"
#include "kernels/random.h"
#include "kernels/softmax_cross_entropy.h"
#include "tests/support/op_run.h"
#include "tests/support/random.h"

namespace lockstep::kernels {
namespace {

using testing::random_values;
using testing::to_doubles;
using testing::to_tensor;
using Values = std::vector<double>;

class GpuKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const GpuCount gpus = count_gpus(); gpus.count == 0) GTEST_SKIP() << gpus.why_none;
    gpu_.emplace(ContextOptions{.device = DeviceType::cuda});
  }

  // Holds what `body` gives on the GPU, called with f32 and bf16, to what it gives on the CPU in f64. What it stores in
  // bf16 may also differ by `bf16_rounding` times the value.
  template <class Body>
  void expect_same(double tolerance, double bf16_rounding, Body body) {
    const Values expected = body(context().exec(), DType::f64);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const ContextScope scope(*gpu_);
      const Values got = body(context().exec(), dtype);
      ASSERT_EQ(got.size(), expected.size());
      const double rounding = dtype == DType::bf16 ? bf16_rounding : 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], tolerance + rounding * std::abs(expected[i]))
            << dtype_name(dtype) << ", element " << i << " of " << got.size();
      }
    }
  }

  std::optional<Context> gpu_;
};

constexpr double kBf16Rounding = 1.0 / 256;

// Values that every type holds exactly.
Values eighths(std::int64_t count, std::uint64_t stream) {
  Values values = random_values(count, -16, 16, stream);
  for (double& value : values) value = std::round(value) / 8;
  return values;
}

constexpr std::int64_t kCount = 2 * kDecayChunk + 129;  // an incomplete chunk at the end

using Update = std::function<void(const ExecContext&, const UpdateRange&, View first, View second)>;

// Parameters and their bf16 copies after some steps. `dtype` is that of the gradients; on a GPU the rest is f32.
Values trained(const ExecContext& exec, DType dtype, const Update& update) {
  const bool gpu = exec.device == DeviceType::cuda;
  const DType state = gpu ? DType::f32 : DType::f64;
  const Tensor param = to_tensor(eighths(kCount, 0), {kCount}, state);
  const Tensor first = Tensor::zeros({kCount}, state), second = Tensor::zeros({kCount}, state);
  const Tensor copy = Tensor::zeros({kCount}, DType::bf16);
  const Tensor decays = Tensor::from_host<std::uint8_t>(std::vector<std::uint8_t>{1, 0, 1}, {3});
  const Tensor scale = to_tensor({0.5}, {}, DType::f64);
  DeviceValue<StepScalars> scalars(exec.device);
  for (int step = 1; step <= 5; ++step) {
    scalars.store(exec, {.learning_rate = 0.1 / step, .step = step});
    update(exec,
           {.param = param,
            .grad = to_tensor(eighths(kCount, static_cast<std::uint64_t>(step)), {kCount}, gpu ? dtype : state),
            .decay = decays,
            .grad_scale = ConstView(scale).as<double>(),
            .scalars = scalars.get(),
            .compute_copy = gpu ? copy.view() : View{}},
           first, second);
  }
  const Values values = to_doubles(param);
  if (gpu) {
    const Values rounded = to_doubles(copy);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(rounded[i], testing::to_doubles(to_tensor({values[i]}, {1}, DType::bf16))[0])
          << "copy of element " << i;
    }
  }
  return values;
}

TEST_F(GpuKernels, Sgd) {
  for (const SgdHyperparameters& h : {SgdHyperparameters{}, SgdHyperparameters{.momentum = 0.9, .weight_decay = 0.01},
                                      SgdHyperparameters{.momentum = 0.9, .weight_decay = 0.01, .nesterov = true}}) {
    expect_same(1e-5, 0, [&](const ExecContext& exec, DType dtype) {
      return trained(exec, dtype, [&](const ExecContext& e, const UpdateRange& range, View first, View) {
        LOCKSTEP_DISPATCH(sgd_step, e, range, h.momentum == 0 ? View{} : first, h);
      });
    });
  }
}

TEST_F(GpuKernels, AdamW) {
  const AdamWHyperparameters h{.weight_decay = 0.1};
  expect_same(1e-5, 0, [&](const ExecContext& exec, DType dtype) {
    return trained(exec, dtype, [&](const ExecContext& e, const UpdateRange& range, View first, View second) {
      LOCKSTEP_DISPATCH(adamw_step, e, range, first, second, h);
    });
  });
}

TEST_F(GpuKernels, GradientNorm) {
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{17}, kNormBlock, 3 * kNormBlock + 129}) {
    const Values gradients = eighths(count, 0);
    for (const double max_norm : {0.0, 1.0, 1e9}) {
      expect_same(1e-9, 0, [&](const ExecContext& exec, DType dtype) {
        const Tensor partials = Tensor::empty({(count + kNormBlock - 1) / kNormBlock}, DType::f64);
        const Tensor norm = Tensor::empty({}, DType::f64), factor = Tensor::empty({}, DType::f64);
        LOCKSTEP_DISPATCH(sum_of_squares, exec, to_tensor(gradients, {count}, dtype), partials);
        LOCKSTEP_DISPATCH(combine_norm, exec, partials, max_norm, norm, factor);
        Values result = to_doubles(partials);
        result.push_back(to_doubles(norm)[0]);
        result.push_back(to_doubles(factor)[0]);
        return result;
      });
    }
  }
}

TEST_F(GpuKernels, SquaresThatOverflowF32AreSummed) {
  const ContextScope scope(*gpu_);
  const Tensor partials = Tensor::empty({1}, DType::f64);
  LOCKSTEP_DISPATCH(sum_of_squares, context().exec(), to_tensor({3e30, 4e30}, {2}, DType::f32), partials);
  EXPECT_NEAR(to_doubles(partials)[0], 25e60, 1e55);
}

TEST_F(GpuKernels, Fills) {
  for (const std::int64_t count : {1, 3, 17, 1000}) {
    expect_same(1e-6, kBf16Rounding, [&](const ExecContext& exec, DType dtype) {
      const Tensor uniform = Tensor::empty({count}, dtype), normal = Tensor::empty({count}, dtype);
      LOCKSTEP_DISPATCH(fill_uniform, exec, uniform, -1.0, 2.0, 77, 3);
      LOCKSTEP_DISPATCH(fill_normal, exec, normal, 0.5, 2.0, 77, 4);
      Values result = to_doubles(uniform);
      const Values more = to_doubles(normal);
      result.insert(result.end(), more.begin(), more.end());
      return result;
    });
  }
}

TEST_F(GpuKernels, Normalize) {
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 5, 5, 3}, Shape{2, 7, 7, 1}, Shape{5, 17}}) {
    std::vector<float> mean, stddev;
    for (int c = 0; c < shape[-1]; ++c) {
      mean.push_back(0.1F * static_cast<float>(c));
      stddev.push_back(0.5F + static_cast<float>(c));
    }
    const Values drawn = random_values(shape.numel(), 0, 255);
    const std::vector<std::uint8_t> bytes(drawn.begin(), drawn.end());
    for (const bool standardised : {false, true}) {
      const std::vector<float> none;
      expect_same(1e-6, kBf16Rounding, [&](const ExecContext& exec, DType dtype) {
        const Tensor y = Tensor::empty(shape, dtype);
        LOCKSTEP_DISPATCH(normalize, exec, Tensor::from_host<std::uint8_t>(bytes, shape), standardised ? mean : none,
                          standardised ? stddev : none, y);
        return to_doubles(y);
      });
      expect_same(1e-4, kBf16Rounding, [&](const ExecContext& exec, DType dtype) {
        const Tensor y = Tensor::empty(shape, dtype);
        LOCKSTEP_DISPATCH(normalize, exec, to_tensor(drawn, shape, DType::f32), standardised ? mean : none,
                          standardised ? stddev : none, y);
        return to_doubles(y);
      });
    }
  }
}

TEST_F(GpuKernels, CountCorrect) {
  for (const Shape& shape :
       {Shape{1, 1}, Shape{64, 10}, Shape{300, 3}, Shape{17, 1000}, Shape{5, 5001}, Shape{0, 10}}) {
    Values logits = random_values(shape.numel(), -2, 2);
    for (double& value : logits) value = std::round(value);  // many ties
    const auto labels = testing::random_indices(shape[0], static_cast<std::int32_t>(shape[1]));
    expect_same(0, 0, [&](const ExecContext& exec, DType dtype) {
      const Tensor count = Tensor::empty({}, DType::i32);
      LOCKSTEP_DISPATCH(count_correct, exec, to_tensor(logits, shape, dtype),
                        Tensor::from_host<std::int32_t>(labels, {shape[0]}), count);
      return Values{static_cast<double>(count.to_host<std::int32_t>()[0])};
    });
  }
}

TEST_F(GpuKernels, InvalidLabelsMakeTheLossNan) {
  const ContextScope scope(*gpu_);
  const Tensor labels = Tensor::from_host<std::int32_t>(std::vector<std::int32_t>{0, 3}, {2});
  const Tensor lse = Tensor::empty({2}, DType::f32), loss = Tensor::empty({}, DType::f32);
  LOCKSTEP_DISPATCH(softmax_cross_entropy_forward, context().exec(), Tensor::zeros({2, 3}, DType::f32), labels, 0.0,
                    lse, loss);
  EXPECT_TRUE(std::isnan(loss.to_host<float>()[0]));
}

}  // namespace
}  // namespace lockstep::kernels
