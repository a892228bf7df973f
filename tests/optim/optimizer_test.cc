#include "framework/optim/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "framework/core/context.h"
#include "framework/optim/gradient_norm.h"
#include "framework/optim/parameter_arena.h"
#include "tests/support/golden.h"
#include "tests/support/seed.h"

namespace lockstep {
namespace {

using Values = std::vector<double>;

// Values cross over to the element type of the current context and back.
void write(const Tensor& tensor, const Values& values) {
  if (tensor.dtype() == DType::f64) return tensor.copy_from_host({values.data(), DType::f64, tensor.shape()});
  const std::vector<float> rounded(values.begin(), values.end());
  tensor.copy_from_host({rounded.data(), DType::f32, tensor.shape()});
}

Values read(const Tensor& tensor) {
  if (tensor.dtype() == DType::f64) return tensor.to_host<double>();
  const std::vector<float> values = tensor.to_host<float>();
  return {values.begin(), values.end()};
}

// Parameters of the given sizes in an arena; every second one, from the second on, is not decayed.
struct Parameters {
  explicit Parameters(const std::vector<std::int64_t>& sizes, const BucketCaps& caps = {}) {
    std::vector<Parameter*> order;
    for (const std::int64_t size : sizes) {
      const bool decay = all.size() % 2 == 0;
      all.push_back(std::make_unique<Parameter>("p" + std::to_string(all.size()),
                                                Tensor::zeros({size}, context().dtype()), decay));
      order.push_back(all.back().get());
    }
    arena = std::make_unique<ParameterArena>(order, caps);
  }

  std::vector<std::unique_ptr<Parameter>> all;
  std::unique_ptr<ParameterArena> arena;
};

OptimizerConfig config_of(const nlohmann::json& golden) {
  if (golden["kind"] == "sgd") {
    SgdConfig sgd;
    sgd.momentum = golden.value("momentum", sgd.momentum);
    sgd.weight_decay = golden.value("weight_decay", sgd.weight_decay);
    sgd.nesterov = golden.value("nesterov", sgd.nesterov);
    return sgd;
  }
  AdamWConfig adamw;
  adamw.beta1 = golden.value("beta1", adamw.beta1);
  adamw.beta2 = golden.value("beta2", adamw.beta2);
  adamw.eps = golden.value("eps", adamw.eps);
  adamw.weight_decay = golden.value("weight_decay", adamw.weight_decay);
  return adamw;
}

void expect_traces(DType dtype, double tolerance) {
  Context rank(DeviceType::cpu, 1, dtype);
  const ContextScope scope(rank);
  const nlohmann::json golden = testing::read_golden("optimizers.json");
  const auto initial = golden["initial"].get<Values>();
  const auto gradients = golden["gradients"].get<std::vector<Values>>();
  const auto learning_rates = golden["learning_rates"].get<Values>();
  ASSERT_EQ(learning_rates.size(), 20U);
  ASSERT_EQ(golden["cases"].size(), 10U);
  for (const nlohmann::json& trace : golden["cases"]) {
    Parameters parameters({2, 1});
    const auto& weight = *parameters.all[0];
    const auto& bias = *parameters.all[1];
    write(weight.value, {initial[0], initial[1]});
    write(bias.value, {initial[2]});
    const auto optimizer = make_optimizer(config_of(trace), *parameters.arena);
    GradientNorm norm(*parameters.arena, trace.value("max_norm", 0.0));
    for (std::size_t i = 0; i < learning_rates.size(); ++i) {
      write(weight.grad(), {gradients[i][0], gradients[i][1]});
      write(bias.grad(), {gradients[i][2]});
      if (trace.contains("max_norm")) {
        norm.measure();
        EXPECT_NEAR(norm.norm(), trace["norms"][i], tolerance) << trace["name"] << ", step " << i;
        optimizer->begin_step(learning_rates[i]);
        optimizer->update(parameters.arena->whole(), norm.clip_factor());
      } else {
        optimizer->step(learning_rates[i]);
      }
      Values values = read(weight.value);
      values.push_back(read(bias.value)[0]);
      for (std::size_t k = 0; k < values.size(); ++k) {
        EXPECT_NEAR(values[k], trace["values"][i][k], tolerance) << trace["name"] << ", step " << i << ", value " << k;
      }
    }
  }
}

TEST(Optimizer, FollowsPyTorchInF64) { expect_traces(DType::f64, 1e-14); }
TEST(Optimizer, FollowsPyTorchInF32) { expect_traces(DType::f32, 2e-6); }

struct Case {
  std::string name;
  OptimizerConfig config;
};

std::vector<Case> cases() {
  return {{"sgd", SgdConfig{.weight_decay = 0.1}},
          {"sgd_momentum", SgdConfig{.momentum = 0.9, .weight_decay = 0.1}},
          {"sgd_nesterov", SgdConfig{.momentum = 0.9, .nesterov = true}},
          {"adamw", AdamWConfig{.weight_decay = 0.1}}};
}

void fill_random(const Tensor& tensor, std::mt19937_64& engine) {
  std::uniform_real_distribution<double> draw(-1, 1);
  Values values(static_cast<std::size_t>(tensor.numel()));
  std::generate(values.begin(), values.end(), [&] { return draw(engine); });
  write(tensor, values);
}

// The update rules once more, element by element, in double precision.
struct Reference {
  OptimizerConfig config;
  Values values, first, second;  // parameters and moments
  bool decay;
  int steps = 0;

  void step(const Values& gradient, double learning_rate) {
    ++steps;
    first.resize(values.size());
    second.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (const auto* sgd = std::get_if<SgdConfig>(&config)) {
        const double g = gradient[i] + (decay ? sgd->weight_decay * values[i] : 0.0);
        first[i] = sgd->momentum * first[i] + g;
        values[i] -= learning_rate * (sgd->nesterov ? g + sgd->momentum * first[i] : first[i]);
      } else {
        const auto& adamw = std::get<AdamWConfig>(config);
        first[i] = adamw.beta1 * first[i] + (1 - adamw.beta1) * gradient[i];
        second[i] = adamw.beta2 * second[i] + (1 - adamw.beta2) * gradient[i] * gradient[i];
        const double mean = first[i] / (1 - std::pow(adamw.beta1, steps));
        const double variance = second[i] / (1 - std::pow(adamw.beta2, steps));
        values[i] -=
            learning_rate * ((decay ? adamw.weight_decay * values[i] : 0.0) + mean / (std::sqrt(variance) + adamw.eps));
      }
    }
  }
};

// Sizes around the chunk of 1024 and around vector registers, decayed and not, by two threads.
void expect_reference(DType dtype, double tolerance) {
  Context rank(DeviceType::cpu, 2, dtype);
  const ContextScope scope(rank);
  std::mt19937_64 engine(testing::test_seed());
  for (const Case& test : cases()) {
    Parameters parameters({1, 3, 17, 129, 1000, 1024, 1025, 70001, 5000});
    std::vector<Reference> references;
    for (const auto& parameter : parameters.all) {
      fill_random(parameter->value, engine);
      references.push_back({test.config, read(parameter->value), {}, {}, parameter->decay});
    }
    const auto optimizer = make_optimizer(test.config, *parameters.arena);
    for (const double learning_rate : {0.1, 0.05, 0.2}) {
      for (std::size_t p = 0; p < references.size(); ++p) {
        fill_random(parameters.all[p]->grad(), engine);
        references[p].step(read(parameters.all[p]->grad()), learning_rate);
      }
      optimizer->step(learning_rate);
    }
    for (std::size_t p = 0; p < references.size(); ++p) {
      const Values values = read(parameters.all[p]->value);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(values[i], references[p].values[i], tolerance)
            << test.name << " " << dtype_name(dtype) << ", element " << i << " of " << values.size();
      }
    }
  }
}

TEST(Optimizer, UpdatesEveryElementInF64) { expect_reference(DType::f64, 1e-13); }
TEST(Optimizer, UpdatesEveryElementInF32) { expect_reference(DType::f32, 5e-6); }

// What follows compares the bits of two ways to train.
struct Training {
  Parameters parameters;
  std::unique_ptr<Optimizer> optimizer;
};

const std::vector<std::int64_t> kSizes = {40000, 300, 90000, 7, 20000};
constexpr BucketCaps kSmallBuckets = {.first_mib = 0.05, .cap_mib = 0.1};

Training make_training(const OptimizerConfig& config, std::uint64_t seed) {
  Training run{Parameters(kSizes, kSmallBuckets), nullptr};
  std::mt19937_64 engine(seed);
  for (const auto& parameter : run.parameters.all) fill_random(parameter->value, engine);
  run.optimizer = make_optimizer(config, *run.parameters.arena);
  return run;
}

void set_gradients(Training& run, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  for (const auto& parameter : run.parameters.all) fill_random(parameter->grad(), engine);
}

Values values_of(const Training& run) { return read(run.parameters.arena->values()); }

TEST(Optimizer, UpdateByBucketsEqualsUpdateOfTheWhole) {
  const std::uint64_t seed = testing::test_seed();
  for (const Case& test : cases()) {
    Training whole = make_training(test.config, seed);
    Training parts = make_training(test.config, seed);
    ASSERT_GT(parts.parameters.arena->buckets().size(), 1U);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      set_gradients(whole, seed + step);
      set_gradients(parts, seed + step);
      whole.optimizer->step(0.1);
      parts.optimizer->begin_step(0.1);
      for (const Bucket& bucket : parts.parameters.arena->buckets()) parts.optimizer->update(bucket.range);
    }
    EXPECT_EQ(values_of(whole), values_of(parts)) << test.name;
  }
}

TEST(Optimizer, ContinuesFromItsState) {
  const std::uint64_t seed = testing::test_seed();
  for (const Case& test : cases()) {
    Training all = make_training(test.config, seed);
    Training resumed = make_training(test.config, seed + 100);
    for (std::uint64_t step = 1; step <= 4; ++step) {
      if (step == 3) {
        write(resumed.parameters.arena->values(), values_of(all));
        ASSERT_EQ(all.optimizer->state().size(), resumed.optimizer->state().size());
        for (std::size_t i = 0; i < all.optimizer->state().size(); ++i) {
          write(resumed.optimizer->state()[i].values, read(all.optimizer->state()[i].values));
        }
        resumed.optimizer->set_steps(all.optimizer->steps());
      }
      for (Training* run : {&all, &resumed}) {
        if (run == &resumed && step < 3) continue;
        set_gradients(*run, seed + step);
        run->optimizer->step(0.1);
      }
    }
    EXPECT_EQ(values_of(all), values_of(resumed)) << test.name;
  }
}

TEST(Optimizer, LeavesThePaddingZero) {
  for (const Case& test : cases()) {
    Training run = make_training(test.config, testing::test_seed());
    set_gradients(run, testing::test_seed() + 1);
    run.optimizer->step(0.1);
    Values values = values_of(run);
    for (const ArenaSlot& slot : run.parameters.arena->slots()) {
      std::fill_n(values.begin() + slot.range.offset, slot.range.count, 0.0);
    }
    EXPECT_EQ(values, Values(values.size(), 0.0)) << test.name;
  }
}

// A store is a kernel of its own on a GPU: there is none where the device holds the numbers already.
TEST(Optimizer, StoresOnlyWhatTheDeviceHasNotCounted) {
  Parameters parameters({3});
  const auto optimizer = make_optimizer(SgdConfig{}, *parameters.arena);
  kernels::StepScalars& device = *optimizer->scalars();
  const auto begin = [&](double learning_rate) {
    device.learning_rate = -1;  // remains where nothing is stored
    optimizer->begin_step(learning_rate);
    return device;
  };
  EXPECT_EQ(begin(0.1), (kernels::StepScalars{0.1, 1}));
  EXPECT_EQ(begin(0.1), (kernels::StepScalars{0.1, 2})) << "nothing was counted";
  ++device.step;
  optimizer->counted();
  EXPECT_EQ(begin(0.1), (kernels::StepScalars{-1, 3}));
  EXPECT_EQ(begin(0.1), (kernels::StepScalars{0.1, 4})) << "counted once";
  optimizer->counted();
  EXPECT_EQ(begin(0.2), (kernels::StepScalars{0.2, 5}));
  optimizer->counted();
  optimizer->set_steps(7);
  EXPECT_EQ(begin(0.2), (kernels::StepScalars{0.2, 8}));
}

TEST(Optimizer, RefusesWrongNumbers) {
  Parameters parameters({3});
  const ParameterArena& arena = *parameters.arena;
  const std::vector<std::pair<OptimizerConfig, std::string>> wrong = {
      {SgdConfig{.momentum = 1.0}, "momentum"},
      {SgdConfig{.momentum = -0.1}, "momentum"},
      {SgdConfig{.weight_decay = -1.0}, "weight decay"},
      {SgdConfig{.nesterov = true}, "nesterov"},
      {AdamWConfig{.beta1 = 1.0}, "betas"},
      {AdamWConfig{.beta2 = -0.5}, "betas"},
      {AdamWConfig{.eps = 0.0}, "eps"},
      {AdamWConfig{.weight_decay = -0.1}, "weight decay"},
      {SgdConfig{.momentum = std::nan("")}, "momentum"},
  };
  for (const auto& [config, word] : wrong) {
    try {
      make_optimizer(config, arena);
      ADD_FAILURE() << "accepted a wrong " << word;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
  const auto optimizer = make_optimizer(SgdConfig{}, arena);
  optimizer->begin_step(0.1);
  EXPECT_THROW(optimizer->update({1, 1}), std::invalid_argument);
  EXPECT_THROW(GradientNorm(arena, -1.0), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
