// N ranks with batch B/N are one rank with batch B.
#include "framework/distributed/data_parallel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/data/batch_split.h"
#include "framework/nn/init.h"
#include "framework/nn/layers.h"
#include "framework/ops/activation.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/linear.h"
#include "framework/ops/reduction.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/train/train_step.h"
#include "tests/support/seed.h"
#include "tests/support/worlds.h"

namespace lockstep {
namespace {

constexpr std::int64_t kInputs = 20;
constexpr std::int64_t kWidth = 24;
constexpr std::int64_t kClasses = 5;
constexpr std::int64_t kGlobalBatch = 144;  // divides by ranks x accumulation for both in 1..4
constexpr int kSteps = 10;

// What data parallelism may get wrong in one model: dropout, a residual, and a weight that two layers share.
class Net : public Module {
 public:
  Net() : in_(kInputs, kWidth), shared_(kWidth, kWidth), out_(kWidth, kClasses), dropout_(0.25) {
    register_module("in", in_);
    register_module("shared", shared_);
    register_module("out", out_);
    register_module("dropout", dropout_);
  }
  Tensor forward(const Tensor& x) const {
    Tensor h = dropout_.forward(relu(in_.forward(x)));
    h = add(h, relu(shared_.forward(h)));
    h = add(h, relu(shared_.forward(h)));
    return out_.forward(h);
  }

 private:
  Linear in_, shared_, out_;
  Dropout dropout_;
};

struct Data {
  std::vector<double> samples;
  std::vector<std::int32_t> labels;
};

Data make_data(std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<std::int32_t> label(0, kClasses - 1);
  Data data;
  for (std::int64_t i = 0; i < kSteps * kGlobalBatch * kInputs; ++i) data.samples.push_back(normal(generator));
  for (std::int64_t i = 0; i < kSteps * kGlobalBatch; ++i) data.labels.push_back(label(generator));
  return data;
}

Tensor tensor_of(std::span<const double> values, const Shape& shape, DType dtype) {
  if (dtype == DType::f64) return Tensor::from_host(values, shape);
  const std::vector<float> narrow(values.begin(), values.end());
  return Tensor::from_host(std::span<const float>(narrow), shape);
}

std::vector<double> values_of(const Tensor& tensor) {
  if (tensor.dtype() == DType::f64) return tensor.to_host<double>();
  const auto narrow = tensor.to_host<float>();
  return {narrow.begin(), narrow.end()};
}

using testing::test_seed;

using Parameters = std::map<std::string, std::vector<double>>;

struct TrainingSetup {
  DType dtype = DType::f64;
  int ranks = 1;
  int accumulate = 1;
  TrainStepOptions options = {};
};

// The parameters of every rank after kSteps steps.
std::vector<Parameters> train(const TrainingSetup& setup, const Data& data, std::uint64_t seed) {
  std::vector<Parameters> result(static_cast<std::size_t>(setup.ranks));
  const BatchSplit split{kGlobalBatch / (setup.ranks * setup.accumulate), setup.accumulate, setup.ranks};
  run_local_world(setup.ranks, [&](ProcessGroup& group) {
    Context context(DeviceType::cpu, 1, setup.dtype);
    const ContextScope scope(context);
    context.random.seed = seed + static_cast<std::uint64_t>(group.rank());  // other weights: rank 0's must win
    Net model;
    context.random.seed = seed;
    TrainStepOptions options = setup.options;
    options.accumulate = setup.accumulate;
    options.caps = {.first_mib = 0.0005, .cap_mib = 0.001};  // several buckets
    TrainStep step(
        model,
        [&](const DeviceBatch& batch) { return softmax_cross_entropy(model.forward(batch.samples), batch.labels); },
        SgdConfig{.momentum = 0.9, .weight_decay = 0.01}, group, options);
    std::int64_t micro = 0;
    const auto next = [&]() -> DeviceBatch {
      const std::int64_t at =
          micro / setup.accumulate * kGlobalBatch + split.first_sample(group.rank(), micro % setup.accumulate);
      const auto count = static_cast<std::size_t>(split.batch_per_rank);
      const auto begin = static_cast<std::size_t>(at);
      ++micro;
      return {tensor_of(std::span(data.samples).subspan(begin * kInputs, count * kInputs),
                        {split.batch_per_rank, kInputs}, setup.dtype),
              Tensor::from_host(std::span(data.labels).subspan(begin, count), {split.batch_per_rank}),
              at % kGlobalBatch};
    };
    for (int i = 0; i < kSteps; ++i) step.run(next, 0.05);
    EXPECT_GT(step.arena().buckets().size(), 2u);
    for (const Parameter* parameter : model.parameters()) {
      result[static_cast<std::size_t>(group.rank())][parameter->name] = values_of(parameter->value);
    }
  });
  return result;
}

double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

class RanksEqualOneRank : public ::testing::TestWithParam<DType> {};

TEST_P(RanksEqualOneRank, ForAnyRanksAccumulationAndOverlap) {
  const std::uint64_t seed = test_seed();
  const Data data = make_data(seed);
  const DType dtype = GetParam();
  const double tolerance = dtype == DType::f64 ? 1e-10 : 1e-5;
  const Parameters reference = train({.dtype = dtype}, data, seed)[0];
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (int accumulate = 1; accumulate <= 4; ++accumulate) {
      TrainingSetup setup{.dtype = dtype, .ranks = ranks, .accumulate = accumulate};
      setup.options.buckets.overlap = static_cast<Overlap>((ranks + accumulate) % 3);
      const auto parameters = train(setup, data, seed);
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(parameters[static_cast<std::size_t>(rank)], parameters[0]) << "rank " << rank << " of " << ranks;
      }
      for (const auto& [name, values] : parameters[0]) {
        EXPECT_LE(relative_difference(values, reference.at(name)), tolerance)
            << name << ", " << ranks << " ranks, accumulation " << accumulate;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precision, RanksEqualOneRank, ::testing::Values(DType::f64, DType::f32),
                         [](const auto& parameter) { return dtype_name(parameter.param); });

TEST(DataParallel, ClippingIsOfTheAveragedGradient) {
  const std::uint64_t seed = test_seed();
  const Data data = make_data(seed);
  TrainingSetup setup{.ranks = 1};
  setup.options.clip_norm = 0.3;
  const Parameters reference = train(setup, data, seed)[0];
  const Parameters unclipped = train({.ranks = 1}, data, seed)[0];
  setup.ranks = 3;
  setup.accumulate = 2;
  const Parameters clipped = train(setup, data, seed)[0];
  for (const auto& [name, values] : clipped) {
    EXPECT_LE(relative_difference(values, reference.at(name)), 1e-10) << name;
    EXPECT_GT(relative_difference(values, unclipped.at(name)), 1e-6) << name << ": nothing was clipped";
  }
}

// A gradient is rounded to bf16 on each rank and once more when summed, by 2^-9 at most each time; where the ranks'
// gradients cancel that is more of the sum.
TEST(DataParallel, ABf16WireStaysNearAndKeepsRanksEqual) {
  const std::uint64_t seed = test_seed();
  const Data data = make_data(seed);
  TrainingSetup setup{.dtype = DType::f32, .ranks = 3, .accumulate = 2};
  const Parameters reference = train(setup, data, seed)[0];
  setup.options.buckets.wire_dtype = DType::bf16;
  const auto parameters = train(setup, data, seed);
  EXPECT_EQ(parameters[1], parameters[0]);
  EXPECT_EQ(parameters[2], parameters[0]);
  for (const auto& [name, values] : parameters[0]) {
    EXPECT_LE(relative_difference(values, reference.at(name)), 1e-2) << name;
    EXPECT_GT(relative_difference(values, reference.at(name)), 1e-6) << name << ": nothing was rounded";
  }
}

// loss = mean over the global batch of weight * x: its gradient is the mean of x, and no sum or second mean of it.
TEST(DataParallel, GradientIsTheMeanOverTheGlobalBatch) {
  run_local_world(3, [](ProcessGroup& group) {
    Context context(DeviceType::cpu, 1, DType::f64);
    const ContextScope scope(context);
    class Weight : public Module {
     public:
      Weight() : weight(register_parameter("weight", Tensor::zeros({1, 1}, DType::f64), true)) {}
      std::shared_ptr<Parameter> weight;
    } model;
    TrainStep step(model, [&](const DeviceBatch& batch) { return mean(linear(batch.samples, model.weight->value)); },
                   SgdConfig{}, group, {.accumulate = 2});
    int micro = 0;
    const auto next = [&]() -> DeviceBatch {
      const double x = 100.0 * micro++ + 10.0 * group.rank();
      const double samples[] = {x + 1, x + 3};
      return {Tensor::from_host(std::span<const double>(samples), {2, 1}), {}, 0};
    };
    const StepReport result = step.run(next, 1.0);
    const double mean_of_x = 62.0;  // over micro-steps 0, 100; ranks 0, 10, 20; samples 1, 3
    EXPECT_DOUBLE_EQ(model.weight->value.to_host<double>()[0], -mean_of_x);
    EXPECT_EQ(result.loss, 0.0);
  });
}

TEST(DataParallel, ModelsThatDifferAreRefusedBeforeTheFirstStep) {
  run_local_world(3, [](ProcessGroup& group) {
    Context context;
    const ContextScope scope(context);
    class Two : public Module {
     public:
      explicit Two(std::int64_t width) : first(4, 4), second(4, width) {
        register_module("first", first);
        register_module("second", second);
      }
      Linear first, second;
    } model(group.rank() == 2 ? 3 : 2);
    try {
      make_replicas(model, {}, group);
      FAIL() << "rank " << group.rank() << " noticed nothing";
    } catch (const std::invalid_argument& error) {
      const std::string expected = group.rank() == 2
                                       ? "second.weight (2, 4) f32, this rank has parameter second.weight (3, 4)"
                                       : "rank 2 differs";
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  });
}

TEST(DataParallel, GradientsOfDifferentTypesAreRefused) {
  run_local_world(2, [](ProcessGroup& group) {
    Linear model(2, 2);
    const std::optional<DType> grad_dtype = group.rank() == 1 ? std::optional(DType::bf16) : std::nullopt;
    EXPECT_THROW(make_replicas(model, {}, group, {}, grad_dtype), std::invalid_argument);
  });
}

TEST(DataParallel, OrderOfTheArenaIsRankZeros) {
  run_local_world(2, [](ProcessGroup& group) {
    Context context;
    const ContextScope scope(context);
    Net model;
    std::vector<Parameter*> order = model.parameters();
    if (group.rank() == 0) std::reverse(order.begin(), order.end());
    const ParameterArena arena = make_replicas(model, order, group);
    EXPECT_EQ(arena.slots().front().parameter->name, "out.bias");
    EXPECT_EQ(arena.slots().back().parameter->name, "in.weight");
  });
}

class Branches : public Module {
 public:
  Branches() : used_(3, 1), idle_(3, 1) {
    register_module("used", used_);
    register_module("idle", idle_);
  }
  Tensor forward(const Tensor& x, bool both) const {
    const Tensor y = used_.forward(x);
    return mean(both ? add(y, idle_.forward(x)) : y);
  }

 private:
  Linear used_, idle_;
};

TEST(DataParallel, UnusedParametersAreNamedOrCountAsZero) {
  run_local_world(2, [](ProcessGroup& group) {
    Context context(DeviceType::cpu, 1, DType::f64);
    const ContextScope scope(context);
    const auto next = [] { return DeviceBatch{uniform({4, 3}, -1.0, 1.0), {}, 0}; };

    Branches strict;
    bool both = true;
    TrainStep refusing(
        strict, [&](const DeviceBatch& batch) { return strict.forward(batch.samples, both); }, SgdConfig{}, group);
    refusing.run(next, 0.1);
    both = false;
    try {
      refusing.run(next, 0.1);
      FAIL() << "nothing was noticed";
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find("idle.weight"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("idle.bias"), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("used.weight"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("allow_unused"), std::string::npos) << error.what();
    }

    Branches lenient;
    both = true;
    TrainStepOptions options;
    options.buckets.allow_unused = true;
    TrainStep allowing(
        lenient, [&](const DeviceBatch& batch) { return lenient.forward(batch.samples, both); }, SgdConfig{}, group,
        options);
    allowing.run(next, 0.1);
    const auto parameters = lenient.parameters();
    std::vector<std::vector<double>> before;
    for (const Parameter* parameter : parameters) before.push_back(parameter->value.to_host<double>());
    both = false;
    allowing.run(next, 0.1);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const bool idle = parameters[i]->name.starts_with("idle");
      EXPECT_EQ(parameters[i]->value.to_host<double>() == before[i], idle) << parameters[i]->name;
    }
  });
}

}  // namespace
}  // namespace lockstep
