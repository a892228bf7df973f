// The update kernels against plain loops written from the formulas, and their promise that ranges and threads change no
// bit. Traces of PyTorch's optimizers are held to in tests/optim.
#include "kernels/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "framework/core/context.h"
#include "framework/core/tensor.h"
#include "tests/support/random.h"

namespace lockstep::kernels {
namespace {

constexpr std::int64_t kCount = 2 * kDecayChunk + 129;  // an incomplete chunk at the end
const std::vector<std::uint8_t> kDecays = {1, 0, 1};
constexpr double kGradScale = 0.5;
constexpr int kSteps = 20;

double learning_rate(int step) { return 0.1 / step; }

std::vector<double> gradient(int step) {
  return testing::random_values(kCount, -1, 1, static_cast<std::uint64_t>(step));
}

// Parameters and moments of one run.
struct Arena {
  Tensor param, first, second;

  explicit Arena(DType dtype) {
    const std::vector<double> values = testing::random_values(kCount, -1, 1);
    param = dtype == DType::f64 ? Tensor::from_host<double>(values, {kCount})
                                : Tensor::from_host<float>(std::vector<float>(values.begin(), values.end()), {kCount});
    first = Tensor::zeros({kCount}, dtype);
    second = Tensor::zeros({kCount}, dtype);
  }
};

using Update = std::function<void(const UpdateRange&, View first, View second)>;

// Parameters after the steps, the arena updated range by range: [0, ends[0]), [ends[0], ends[1]) ...
std::vector<double> trained(DType dtype, const Update& update, const std::vector<std::int64_t>& ends = {kCount}) {
  Arena arena(dtype);
  const Tensor decays = Tensor::from_host<std::uint8_t>(kDecays, {3});
  for (int step = 1; step <= kSteps; ++step) {
    const std::vector<double> values = gradient(step);
    const Tensor grad = dtype == DType::f64
                            ? Tensor::from_host<double>(values, {kCount})
                            : Tensor::from_host<float>(std::vector<float>(values.begin(), values.end()), {kCount});
    const StepScalars scalars{.learning_rate = learning_rate(step), .step = step};
    std::int64_t begin = 0;
    for (const std::int64_t end : ends) {
      const std::int64_t last_chunk = (end + kDecayChunk - 1) / kDecayChunk;
      update({.param = arena.param.slice(begin, end),
              .grad = grad.slice(begin, end),
              .decay = decays.slice(begin / kDecayChunk, last_chunk),
              .grad_scale = &kGradScale,
              .scalars = &scalars},
             arena.first.slice(begin, end), arena.second.slice(begin, end));
      begin = end;
    }
  }
  if (dtype == DType::f64) return arena.param.to_host<double>();
  const std::vector<float> param = arena.param.to_host<float>();
  return {param.begin(), param.end()};
}

Update sgd(const SgdHyperparameters& hyperparameters) {
  return [=](const UpdateRange& range, View first, View) {
    cpu::sgd_step(context().exec(), range, hyperparameters.momentum == 0 ? View{} : first, hyperparameters);
  };
}

Update adamw(const AdamWHyperparameters& hyperparameters) {
  return [=](const UpdateRange& range, View first, View second) {
    cpu::adamw_step(context().exec(), range, first, second, hyperparameters);
  };
}

// The formulas, one element at a time.
std::vector<double> reference_sgd(const SgdHyperparameters& h) {
  std::vector<double> param = testing::random_values(kCount, -1, 1);
  std::vector<double> buffer(param.size(), 0.0);
  for (int step = 1; step <= kSteps; ++step) {
    const std::vector<double> grad = gradient(step);
    for (std::size_t i = 0; i < param.size(); ++i) {
      const bool decays = kDecays[i / static_cast<std::size_t>(kDecayChunk)] != 0;
      double direction = kGradScale * grad[i];
      if (decays) direction += h.weight_decay * param[i];
      if (h.momentum != 0) {
        buffer[i] = step == 1 ? direction : h.momentum * buffer[i] + direction;
        direction = h.nesterov ? direction + h.momentum * buffer[i] : buffer[i];
      }
      param[i] -= learning_rate(step) * direction;
    }
  }
  return param;
}

std::vector<double> reference_adamw(const AdamWHyperparameters& h) {
  std::vector<double> param = testing::random_values(kCount, -1, 1);
  std::vector<double> m(param.size(), 0.0), v(param.size(), 0.0);
  for (int step = 1; step <= kSteps; ++step) {
    const std::vector<double> grad = gradient(step);
    for (std::size_t i = 0; i < param.size(); ++i) {
      const double g = kGradScale * grad[i];
      if (kDecays[i / static_cast<std::size_t>(kDecayChunk)] != 0) {
        param[i] -= learning_rate(step) * h.weight_decay * param[i];
      }
      m[i] = h.beta1 * m[i] + (1 - h.beta1) * g;
      v[i] = h.beta2 * v[i] + (1 - h.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(h.beta1, step));
      const double v_hat = v[i] / (1 - std::pow(h.beta2, step));
      param[i] -= learning_rate(step) * m_hat / (std::sqrt(v_hat) + h.eps);
    }
  }
  return param;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance) << "element " << i;
}

TEST(SgdStep, FollowsTheFormula) {
  for (const SgdHyperparameters& h :
       {SgdHyperparameters{}, SgdHyperparameters{.weight_decay = 0.1}, SgdHyperparameters{.momentum = 0.9},
        SgdHyperparameters{.momentum = 0.9, .weight_decay = 0.1},
        SgdHyperparameters{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}}) {
    expect_near(trained(DType::f64, sgd(h)), reference_sgd(h), 1e-13);
    expect_near(trained(DType::f32, sgd(h)), reference_sgd(h), 1e-5);
  }
}

TEST(AdamWStep, FollowsTheFormula) {
  for (const AdamWHyperparameters& h :
       {AdamWHyperparameters{}, AdamWHyperparameters{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.5},
        AdamWHyperparameters{.weight_decay = 0}}) {
    expect_near(trained(DType::f64, adamw(h)), reference_adamw(h), 1e-13);
    expect_near(trained(DType::f32, adamw(h)), reference_adamw(h), 1e-5);
  }
}

TEST(OptimizerSteps, NoGradScaleIsAScaleOfOne) {
  const double one = 1;
  for (const Update& update : {sgd({.momentum = 0.9}), adamw({})}) {
    const auto with_scale = [&](const double* scale) {
      return trained(DType::f32, [&](UpdateRange range, View first, View second) {
        range.grad_scale = scale;
        update(range, first, second);
      });
    };
    EXPECT_EQ(with_scale(nullptr), with_scale(&one));
  }
}

TEST(OptimizerSteps, RangesGiveTheBitsOfTheWholeArena) {
  for (const Update& update : {sgd({.momentum = 0.9, .weight_decay = 0.1}), adamw({})}) {
    EXPECT_EQ(trained(DType::f32, update, {kDecayChunk, kCount}), trained(DType::f32, update));
    EXPECT_EQ(trained(DType::f32, update, {2 * kDecayChunk, kCount}), trained(DType::f32, update));
  }
}

}  // namespace
}  // namespace lockstep::kernels
