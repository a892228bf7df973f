// Times the train step: forward, loss, backward, all-reduce, SGD with momentum, and the loss read on the host. The same
// work in PyTorch is pytorch/train_step.py; compare.py runs both in turn. No gradient norm, no clipping. Rank 0 prints
// one line of JSON.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/version.h"
#include "framework/data/counter_random.h"
#include "framework/distributed/world.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/train/train_step.h"
#include "models/registry.h"

using namespace lockstep;

namespace {

constexpr int kClasses = 10;

struct Options {
  std::string model;
  std::int64_t batch = 64;
  int ranks = 1;
  int threads = 1;
  int warmup = 100;
  int steps = 500;
};

// One random batch, which stays in memory and serves every step.
DeviceBatch make_batch(const Options& options, int rank) {
  const Shape shape = {options.batch, 28, 28, 1};
  const auto key = static_cast<std::uint64_t>(rank);
  std::uint64_t counter = 0;
  std::vector<std::int32_t> labels(static_cast<std::size_t>(options.batch));
  std::vector<float> samples(static_cast<std::size_t>(shape.numel()));
  for (std::int32_t& label : labels) label = static_cast<std::int32_t>(random_bits(key, counter++) % kClasses);
  for (float& pixel : samples) pixel = static_cast<float>(random_bits(key, counter++) >> 40) * 0x1p-24F;
  return {.samples = Tensor::from_host(std::span<const float>(samples), shape),
          .labels = Tensor::from_host(std::span<const std::int32_t>(labels), {options.batch}),
          .first = rank * options.batch};
}

void run(const Options& options, World& world) {
  Context context(DeviceType::cpu, options.threads);
  const ContextScope scope(context);
  const Model model = make_model(options.model, {.sample_shape = {28, 28, 1}, .classes = kClasses});
  const DeviceBatch batch = make_batch(options, world.rank());
  const auto loss = [&](const DeviceBatch& b) { return softmax_cross_entropy(model.logits(b.samples), b.labels); };
  TrainStep train_step(*model.module, loss, SgdConfig{.momentum = 0.9}, world.group());
  const auto step = [&] { return train_step.run([&] { return batch; }, 0.01).loss; };

  for (int i = 0; i < options.warmup; ++i) step();
  world.group().barrier().wait();
  using Clock = std::chrono::steady_clock;
  const auto milliseconds = [](Clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  std::vector<double> step_ms;
  double last_loss = 0;
  const auto begin = Clock::now();
  auto last = begin;
  for (int i = 0; i < options.steps; ++i) {
    last_loss = step();
    const auto now = Clock::now();
    step_ms.push_back(milliseconds(now - last));
    last = now;
  }
  if (world.rank() == 0) {
    std::nth_element(step_ms.begin(), step_ms.begin() + options.steps / 2, step_ms.end());
    fmt::print(R"({{"mean_ms": {}, "median_ms": {}, "loss": {}, "version": "{}"}})"
               "\n",
               milliseconds(last - begin) / options.steps, step_ms[static_cast<std::size_t>(options.steps / 2)],
               last_loss, version());
  }
  world.group().barrier().wait();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times the train step of a model; rank 0 prints one line of JSON.");
  app.add_option("--model", options.model, "mlp or lenet")->required()->check(CLI::IsMember({"mlp", "lenet"}));
  app.add_option("--batch", options.batch, "samples a rank")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--ranks", options.ranks)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads, "a rank")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "steps before")->capture_default_str()->check(CLI::NonNegativeNumber);
  app.add_option("--steps", options.steps, "steps timed")->capture_default_str()->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return run_ranks(options.ranks, argv, [&](World& world) { run(options, world); });
}
