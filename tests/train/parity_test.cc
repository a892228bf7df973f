// Twenty training steps have the losses that PyTorch has from the same initial weights and batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/core/context.h"
#include "framework/data/counter_random.h"
#include "framework/distributed/local_group.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/train/train_step.h"
#include "models/lenet.h"
#include "models/mlp.h"
#include "tests/support/golden.h"

namespace lockstep {
namespace {

// Weights and batches as tests/golden/make_losses.py makes them.
constexpr std::uint64_t kSeed = 9;
constexpr std::uint64_t kPatternKey = 1000 * kSeed;
constexpr std::uint64_t kBatchKey = 1000 * kSeed + 100;
constexpr std::uint64_t kParameterKey = 1000 * kSeed + 200;
constexpr std::int64_t kBatch = 64;
constexpr std::uint64_t kClasses = 10;
constexpr std::uint64_t kSide = 28;
constexpr std::uint64_t kPixels = kSide * kSide;

double uniform_at(std::uint64_t key, std::uint64_t counter) {
  return static_cast<double>(random_bits(key, counter) >> 40) * 0x1p-24;
}

// Every value is one of f32, in both types.
template <class T>
Tensor tensor_of(const std::vector<float>& values, const Shape& shape) {
  const std::vector<T> converted(values.begin(), values.end());
  return Tensor::from_host(std::span<const T>(converted), shape);
}

template <class T>
void initialise(Module& model) {
  std::int64_t fan_in = 0;
  std::uint64_t key = kParameterKey;
  for (Parameter* parameter : model.parameters()) {
    const Shape& shape = parameter->value.shape();
    if (shape.rank() > 1) fan_in = shape.numel() / shape[0];  // a bias has its weight's
    const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
    std::vector<float> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>((2.0 * uniform_at(key, i) - 1.0) * bound);
    }
    parameter->value.copy_from_host(tensor_of<T>(values, shape).view());
    ++key;
  }
}

// Images in [-1, 1): 4 x 4 fields of the label's class, plus noise.
template <class T>
DeviceBatch batch_of(std::uint64_t step) {
  const std::uint64_t key = kBatchKey + step;
  std::vector<std::int32_t> labels(kBatch);
  std::vector<float> images;
  for (std::uint64_t n = 0; n < kBatch; ++n) {
    const std::uint64_t label = random_bits(key, n) % kClasses;
    labels[n] = static_cast<std::int32_t>(label);
    for (std::uint64_t pixel = 0; pixel < kPixels; ++pixel) {
      const std::uint64_t field = (pixel / kSide) / (kSide / 4) * 4 + (pixel % kSide) / (kSide / 4);
      const double noise = uniform_at(key, kBatch + n * kPixels + pixel);
      images.push_back(static_cast<float>(uniform_at(kPatternKey, label * 16 + field) + noise - 1.0));
    }
  }
  return {.samples = tensor_of<T>(images, {kBatch, kSide, kSide, 1}),
          .labels = Tensor::from_host(std::span<const std::int32_t>(labels), {kBatch})};
}

OptimizerConfig optimizer_of(const nlohmann::json& run) {
  if (run["optimizer"] == "sgd") return SgdConfig{.momentum = run["momentum"], .weight_decay = run["weight_decay"]};
  return AdamWConfig{
      .beta1 = run["beta1"], .beta2 = run["beta2"], .eps = run["eps"], .weight_decay = run["weight_decay"]};
}

template <class T, class Model>
std::vector<double> losses_of(const nlohmann::json& run, int steps) {
  Context rank(DeviceType::cpu, 1, dtype_of<T>());
  const ContextScope scope(rank);
  Model model;
  initialise<T>(model);
  const auto groups = make_local_groups(1);
  const auto loss = [&](const DeviceBatch& batch) {
    return softmax_cross_entropy(model.forward(batch.samples), batch.labels);
  };
  TrainStep step(model, loss, optimizer_of(run), *groups[0]);
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    const auto next = [&] { return batch_of<T>(static_cast<std::uint64_t>(i)); };
    losses.push_back(step.run(next, run["learning_rate"]).loss);
  }
  return losses;
}

// The tolerance is relative.
template <class T>
void expect_parity(const std::string& dtype, double tolerance) {
  const nlohmann::json runs = testing::read_golden("losses.json")["runs"];
  ASSERT_EQ(runs.size(), 4U);
  for (const nlohmann::json& run : runs) {
    const auto golden = run[dtype].get<std::vector<double>>();
    ASSERT_EQ(golden.size(), 20U);
    const std::string name = run["model"].get<std::string>() + " " + run["optimizer"].get<std::string>();
    const auto losses = run["model"] == "mlp" ? losses_of<T, Mlp>(run, 20) : losses_of<T, LeNet>(run, 20);
    double worst = 0;
    for (std::size_t i = 0; i < golden.size(); ++i) {
      const double error = std::abs(losses[i] - golden[i]) / golden[i];
      worst = std::max(worst, error);
      EXPECT_LE(error, tolerance) << name << ", step " << i << ": expected " << golden[i] << ", got " << losses[i];
    }
    std::cout << name << " " << dtype << ": at most " << worst << " from PyTorch, relative\n";
  }
}

static_assert(random_bits(0, 0) == 0xE220A8397B1DCDAF, "SplitMix64: the golden losses were made with this sequence");

TEST(PyTorchParity, LossesInF32) { expect_parity<float>("f32", 1e-5); }

// No activation is close enough to a kink of ReLU or max pooling for f64 rounding to matter: this holds the whole step,
// weight decay and bias correction included, to PyTorch's.
TEST(PyTorchParity, LossesInF64) { expect_parity<double>("f64", 1e-10); }

}  // namespace
}  // namespace lockstep
