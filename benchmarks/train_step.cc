// Times the train step: forward, loss, backward, all-reduce, SGD with momentum, and the loss read on the host. The same
// work in PyTorch is pytorch/train_step.py; compare.py runs both in turn. No gradient norm, no clipping. Rank 0 prints
// one line of JSON. On GPUs the host reads a loss some steps late, as in training: it never leaves the GPU without
// work.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "framework/core/allocator.h"
#include "framework/core/context.h"
#include "framework/core/gpu.h"
#include "framework/core/version.h"
#include "framework/distributed/world.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/train/made_up_batch.h"
#include "framework/train/train_step.h"
#include "models/registry.h"

using namespace lockstep;

namespace {

struct Options {
  std::string model;
  std::string device = "cpu";
  std::string precision = "f32";
  std::string grad_dtype = "f32";
  std::string graph = "on";
  bool deterministic = false;
  bool memory = false;
  std::int64_t batch = 64;
  int ranks = 1;
  int threads = 1;
  int warmup = 100;
  int steps = 500;
};

ContextOptions context_options(const Options& options) {
  return {.device = options.device == "cuda" ? DeviceType::cuda : DeviceType::cpu,
          .threads = options.threads,
          .dtype = options.precision == "bf16" ? DType::bf16 : DType::f32,
          .allow_tf32 = options.precision == "tf32",
          .deterministic = options.deterministic};
}

// On a CPU: its name alone.
GpuInfo device() {
  if constexpr (kernels::kHasCuda) {
    if (context().device() == DeviceType::cuda) return selected_gpu();
  }
  return {.name = "cpu"};
}

void run(const Options& options, World& world) {
  const ModelInput input = usual_input(options.model);
  const Model model = make_model(options.model, {.sample_shape = input.sample_shape, .classes = input.classes});
  const auto loss = [&](const DeviceBatch& b) { return softmax_cross_entropy(model.logits(b.samples), b.labels); };
  TrainStepOptions step_options{.graph = options.graph == "on"};
  if (options.grad_dtype == "bf16") step_options.grad_dtype = DType::bf16;
  TrainStep train_step(*model.module, loss, SgdConfig{.momentum = 0.9}, world.group(), step_options);
  // One, which stays where the step reads it.
  const DeviceBatch& batch =
      train_step.prepare(random_batch({.sample_shape = input.sample_shape, .num_classes = input.classes}, options.batch,
                                      world.rank() * options.batch, static_cast<std::uint64_t>(world.rank())));
  double last_loss = 0;
  const auto run_steps = [&](int count) {
    for (int i = 1; i <= count; ++i) {
      train_step.advance([&] { return batch; }, 0.01, i == count,
                         [&](const StepReport& report) { last_loss = report.loss; });
    }
    context().synchronize();
  };

  run_steps(options.warmup);
  world.group().barrier().wait();
  context().synchronize();
  const auto begin = std::chrono::steady_clock::now();
  run_steps(options.steps);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  if (options.memory && world.rank() == 0) {
    fmt::print(stderr, "{}\n", device_allocator(context().device()).table());
  }
  if (world.rank() == 0) {
    const double step_ms = time.count() / options.steps;
    const GpuInfo gpu = device();
    // As NVML has it: context, libraries and NCCL included, and whoever else is on it.
    const std::size_t used_bytes = gpu.total_bytes - gpu.free_bytes;
    std::string versions = fmt::format(R"("Lockstep": "{}")", version());
    for (const BuildPart& part : build_parts()) {
      if (part.present()) versions += fmt::format(R"(, "{}": "{}")", part.name, part.version);
    }
    fmt::print(R"({{"mean_ms": {}, "samples_per_s": {:.1f}, "loss": {}, "memory_mib": {}, "graph": {}, )"
               R"("device": "{}", "versions": {{{}}}}})"
               "\n",
               step_ms, 1e3 * static_cast<double>(options.batch * world.size()) / step_ms, last_loss, used_bytes >> 20,
               train_step.captured(), gpu.name, versions);
  }
  world.group().barrier().wait();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times the train step of a model; rank 0 prints one line of JSON.");
  app.add_option("--model", options.model)->required()->check(CLI::IsMember(model_names()));
  app.add_option("--device", options.device)->capture_default_str()->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--precision", options.precision)
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "tf32", "bf16"}));
  app.add_option("--grad-dtype", options.grad_dtype)->capture_default_str()->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--graph", options.graph, "on GPUs")->capture_default_str()->check(CLI::IsMember({"on", "off"}));
  app.add_flag("--deterministic", options.deterministic, "the same bits in every run");
  app.add_flag("--memory", options.memory, "print to standard error what the device's memory is used for");
  app.add_option("--batch-per-rank", options.batch)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--ranks", options.ranks)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads, "a rank")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "steps before")->capture_default_str()->check(CLI::NonNegativeNumber);
  app.add_option("--steps", options.steps, "steps timed")->capture_default_str()->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return run_ranks(
      options.ranks, argv, [&](World& world) { run(options, world); }, context_options(options));
}
