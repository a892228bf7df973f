#include "cli/train_command.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cli/arguments.h"
#include "cli/checkpoints.h"
#include "cli/data_sources.h"
#include "cli/json_file.h"
#include "cli/link_option.h"
#include "cli/link_report.h"
#include "cli/link_witness.h"
#include "cli/nccl_log_files.h"
#include "cli/placement.h"
#include "cli/progress.h"
#include "cli/run_directory.h"
#include "cli/step_arguments.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/gpu.h"
#include "framework/core/nearest_name.h"
#include "framework/core/replace_file.h"
#include "framework/core/version.h"
#include "framework/distributed/data_parallel.h"
#include "framework/distributed/gpu_assignment.h"
#include "framework/distributed/launcher.h"
#include "framework/distributed/world.h"
#include "framework/train/trainer.h"
#include "models/registry.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kDefaultEpochs = 5;
constexpr std::int64_t kMostEpochs = 1'000'000'000;  // times the steps of one it still fits a counter
constexpr std::int64_t kDefaultBatchPerRank = 64;

struct TrainArguments {
  std::string model;
  DeviceArguments device;
  LinkArguments link;
  DataArguments data;
  std::optional<std::int64_t> batch_per_rank, global_batch, accumulate, steps, epochs;
  std::string optimizer = "sgd";
  std::optional<double> lr, weight_decay, dropout;
  double momentum = 0.9;
  double clip = 0.0;
  std::string schedule = "constant";
  std::int64_t warmup = 0;
  double label_smoothing = 0.0;
  StepArguments step;
  std::string short_batch = "drop";
  std::uint64_t seed = 0;
  std::int64_t eval_every = 0;
  std::int64_t checkpoint_every = 0;
  std::string out;
  std::string resume;
};

template <class Visitor>
void visit_fields(TrainArguments& arguments, Visitor&& visit) {
  visit_fields(arguments.device, visit);
  visit_fields(arguments.link, visit);
  visit_fields(arguments.data, visit);
  visit("--batch-per-rank", arguments.batch_per_rank, "samples of a rank in a micro-step (B)");
  visit("--global-batch", arguments.global_batch,
        "samples of a step over all ranks: G = B x A x ranks; any two give the third");
  visit("--accumulate", arguments.accumulate, "micro-steps of a step (A)");
  visit("--steps", arguments.steps, "since the start of training; default: --epochs");
  visit("--epochs", arguments.epochs, "passes over the data since the start of training; default: 5");
  visit("--optimizer", arguments.optimizer, "sgd or adamw");
  visit("--lr", arguments.lr, "peak learning rate; default: 0.05 for sgd, 0.001 for adamw");
  visit("--momentum", arguments.momentum, "of sgd");
  visit("--weight-decay", arguments.weight_decay, "of matrices and filters; default: 0 for sgd, 0.01 for adamw");
  visit("--clip", arguments.clip, "largest norm of the gradient; 0: not clipped");
  visit("--schedule", arguments.schedule, "constant, cosine, linear or step (a tenth after each third of the run)");
  visit("--warmup", arguments.warmup, "steps of linear warm-up");
  visit("--label-smoothing", arguments.label_smoothing, "share of the target spread over all classes");
  visit("--dropout", arguments.dropout,
        "probability that a hidden unit is dropped; default: 0.5 for vgg, 0 for the others");
  visit_fields(arguments.step, visit);
  visit("--short-batch", arguments.short_batch,
        "the samples that fill no global batch at the end of an epoch: drop them, or pad them from its head");
  visit("--seed", arguments.seed, "of initial weights, sample order and dropout");
  visit("--eval-every", arguments.eval_every, "steps; 0: after each epoch");
  visit("--checkpoint-every", arguments.checkpoint_every, "steps; 0: after the last step only");
}

// Takes what the command line leaves open from the run that is resumed.
void inherit_options(const CLI::App& app, TrainArguments& arguments) {
  const nlohmann::ordered_json config = read_json_file("--resume", fs::path(arguments.resume) / "config.json");
  try {
    expect(config.at("model") == arguments.model, "--resume {}: expected model {}, as it was trained, got {}",
           arguments.resume, config.at("model").get<std::string>(), arguments.model);
    nlohmann::ordered_json options = config.at("options");
    // A new length or batch replaces the old one, in whichever unit it is given. Ranks are those of today; the global
    // batch stays what it was, so that the number of ranks changes nothing but speed.
    const auto given = [&](const char* option) { return app.get_option(option)->count() > 0; };
    expect(!given("--seed"), "--resume {}: expected no --seed: that of the run decides the order of its data",
           arguments.resume);
    if (given("--data")) options["synthetic"] = options["image-size"] = nullptr;
    if (given("--synthetic")) options["data"] = options["val-data"] = nullptr;
    if (given("--steps") || given("--epochs")) options["steps"] = options["epochs"] = nullptr;
    options["batch-per-rank"] = nullptr;
    if (given("--batch-per-rank") || given("--global-batch")) {
      options["global-batch"] = options["accumulate"] = nullptr;
    } else {
      options["global-batch"] = config.at("global_batch");
    }
    for (const char* place : {"device", "ranks", "threads", "link", "require-proof"}) options[place] = nullptr;
    const nlohmann::ordered_json all = to_json(arguments);
    for (const auto& [name, value] : all.items()) {
      expect(options.contains(name) || config.at("version") != version(),
             "{}/config.json: expected an entry {} among the options, found none", arguments.resume, name);
    }
    read_from(arguments.resume + "/config.json", [&] { fill_from_json(app, arguments, options); });
  } catch (const nlohmann::json::exception& error) {
    const std::string_view text = error.what();  // "[json.exception.out_of_range.403] key 'model' not found"
    const std::size_t name_end = text.find("] ");
    throw std::invalid_argument(fmt::format("{}/config.json: expected the options of a run, got: {}", arguments.resume,
                                            text.substr(name_end == text.npos ? 0 : name_end + 2)));
  }
}

BatchSplit split_of(const TrainArguments& arguments, std::int64_t ranks) {
  BatchRequest request{.global_batch = arguments.global_batch,
                       .batch_per_rank = arguments.batch_per_rank,
                       .accumulate = arguments.accumulate};
  if (!request.global_batch && !request.batch_per_rank) request.batch_per_rank = kDefaultBatchPerRank;
  return split_batch(request, ranks);
}

OptimizerConfig optimizer_of(const TrainArguments& arguments) {
  if (arguments.optimizer == "adamw") return AdamWConfig{.weight_decay = arguments.weight_decay.value_or(0.01)};
  return SgdConfig{.momentum = arguments.momentum, .weight_decay = arguments.weight_decay.value_or(0.0)};
}

Schedule schedule_of(const TrainArguments& arguments, std::int64_t total_steps) {
  using Kind = Schedule::Kind;
  const Kind kind = arguments.schedule == "cosine"   ? Kind::cosine
                    : arguments.schedule == "linear" ? Kind::linear
                    : arguments.schedule == "step"   ? Kind::step
                                                     : Kind::constant;
  return {.kind = kind,
          .peak = arguments.lr.value_or(arguments.optimizer == "adamw" ? 0.001 : 0.05),
          .warmup_steps = arguments.warmup,
          .total_steps = total_steps,
          .step_size = std::max<std::int64_t>(1, (total_steps - arguments.warmup - 1) / 3 + 1)};
}

TrainerOptions trainer_options(const TrainArguments& arguments, const Dataset& train, int ranks) {
  TrainerOptions options;
  options.model_name = arguments.model;
  options.split = split_of(arguments, ranks);
  options.short_batch = arguments.short_batch == "pad" ? ShortBatch::pad : ShortBatch::drop;
  const std::int64_t epoch_steps = steps_per_epoch(train.size(), options.split.global_batch(), options.short_batch);
  options.steps = arguments.steps.value_or(arguments.epochs.value_or(kDefaultEpochs) * epoch_steps);
  options.optimizer = optimizer_of(arguments);
  options.schedule = schedule_of(arguments, options.steps);
  options.step = step_options(arguments.step);
  options.step.clip_norm = arguments.clip;
  options.step.grad_norm = true;
  options.label_smoothing = arguments.label_smoothing;
  options.seed = arguments.seed;
  options.eval_every = arguments.eval_every;
  options.checkpoint_every = arguments.checkpoint_every;
  options.resume_dir = arguments.resume;
  return options;
}

void check(const TrainArguments& arguments) {
  expect_known("model", arguments.model, model_names());
  expect_known("optimizer", arguments.optimizer, {"sgd", "adamw"});
  expect_known("schedule", arguments.schedule, {"constant", "cosine", "linear", "step"});
  expect_known("--short-batch", arguments.short_batch, {"drop", "pad"});
  check(arguments.step);
  expect(arguments.epochs.value_or(1) <= kMostEpochs, "--epochs: expected at most {}, got {}", kMostEpochs,
         arguments.epochs.value_or(1));
  expect(!arguments.steps || !arguments.epochs, "expected --steps or --epochs, got both");
  const auto at_least = [](const char* option, auto value, auto least) {
    expect(value >= least, "{}: expected at least {}, got {}", option, least, value);
  };
  at_least("--steps", arguments.steps.value_or(1), std::int64_t{1});
  at_least("--epochs", arguments.epochs.value_or(1), std::int64_t{1});
  at_least("--warmup", arguments.warmup, std::int64_t{0});
  at_least("--eval-every", arguments.eval_every, std::int64_t{0});
  at_least("--checkpoint-every", arguments.checkpoint_every, std::int64_t{0});
  at_least("--lr", arguments.lr.value_or(0.0), 0.0);
  at_least("--clip", arguments.clip, 0.0);
  const double dropout = arguments.dropout.value_or(0.0);
  expect(dropout >= 0 && dropout < 1, "--dropout: expected a probability in [0, 1), got {}", dropout);
  expect(arguments.label_smoothing >= 0 && arguments.label_smoothing < 1,
         "--label-smoothing: expected a share in [0, 1), got {}", arguments.label_smoothing);
}

// Everything that is needed to repeat the run.
void write_config(const fs::path& directory, const TrainArguments& arguments, const World& world,
                  const Context& context, const BatchSplit& split, std::int64_t steps, const LinkPolicy& policy,
                  const LinkProof& probe) {
  nlohmann::ordered_json config = {{"version", std::string(version())},
                                   {"model", arguments.model},
                                   {"options", to_json(arguments)},
                                   {"ranks", world.environment().world_size},
                                   {"launcher", launcher_name(world.environment().launcher)},
                                   {"device", context.device() == DeviceType::cuda ? "cuda" : "cpu"},
                                   {"threads", context.exec().threads},
                                   {"batch_per_rank", split.batch_per_rank},
                                   {"accumulate", split.accumulate},
                                   {"global_batch", split.global_batch()},
                                   {"steps", steps},
                                   {"link", to_json(policy)}};
  config["link"]["probe"] = to_json(probe);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const auto equals = text.find('=');
    if ((text.starts_with("NCCL_") && !is_set_for_log(text)) || text.starts_with("CUDA_")) {
      config["environment"][text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  replace_file(directory / "config.json", as_text(config, 2) + "\n");
}

// "2 ranks x 8 threads", "2 GPUs (NVIDIA H200)", "2 ranks on shared GPUs (NVIDIA H200)"
std::string describe(const Environment& environment, const Context& context) {
  const int ranks = environment.world_size;
  const int threads = context.exec().threads;
  if constexpr (kernels::kHasCuda) {
    if (context.device() == DeviceType::cuda) {
      const std::string gpus = gpus_are_shared() && ranks > 1 ? fmt::format("{} ranks on shared GPUs", ranks)
                                                              : fmt::format("{} GPU{}", ranks, ranks == 1 ? "" : "s");
      return fmt::format("{} ({})", gpus, selected_gpu().name);
    }
  }
  return fmt::format("{} rank{} x {} thread{}", ranks, ranks == 1 ? "" : "s", threads, threads == 1 ? "" : "s");
}

void train_as(const TrainArguments& arguments, const DataSources& data, const LinkPolicy& policy, World& world) {
  LinkWitness witness(arguments.link, world);
  const Model model = make_model(
      arguments.model,
      {.sample_shape = data.train->sample_shape(), .classes = data.train->num_classes(), .dropout = arguments.dropout});
  TrainerOptions options = trainer_options(arguments, *data.train, world.size());
  std::optional<RunDirectory> directory;
  if (world.rank() == 0) {
    directory.emplace(arguments.out, arguments.resume, arguments.model);
    options.run_dir = directory->path();
  }
  Trainer trainer(*model.module, model.logits, *data.train, data.validation.get(), world.group(), options);

  std::optional<Progress> progress;
  if (world.rank() == 0) {
    write_config(options.run_dir, arguments, world, context(), options.split, options.steps, policy, witness.probe());
    progress.emplace(trainer.steps_done(), options.steps);
    fmt::print("{} on {}: {}, {} samples a step, {} steps\n", arguments.model, data.train->info().name,
               describe(world.environment(), context()), options.split.global_batch(), options.steps);
    if (says_link(arguments.link)) fmt::print("{}\n", cli::describe(policy, witness.probe()));
    std::fflush(stdout);
  }
  const std::int64_t first_step = trainer.steps_done();
  witness.begin();
  const std::optional<EvalResult> result = trainer.run([&](const StepMetrics& metrics) {
    if (progress) progress->update(metrics);
  });
  const auto reduced_bytes =
      static_cast<double>((trainer.steps_done() - first_step) * trainer.reduced_bytes_per_step());
  const LinkProof proof = witness.end(all_reduce_wire_bytes(reduced_bytes, world.size()));
  if (world.rank() == 0) {
    if (says_link(arguments.link)) {
      const nlohmann::ordered_json link = {{"probe", to_json(witness.probe())}, {"training", to_json(proof)}};
      replace_file(options.run_dir / "link.json", as_text(link, 2) + "\n");
    }
    if (witness.probe().verdict == Verdict::proven) {
      fmt::print("link {} in training: {}: {}\n", arguments.link.link, verdict_name(proof.verdict), proof.reason);
    }
    if (result)
      fmt::print("test accuracy {:.4f}, loss {:.4f} ({} samples)\n", result->accuracy, result->loss, result->samples);
    fmt::print("run directory {}\n", options.run_dir.string());
  }
  witness.expect_proof(proof);
}

void preflight(const TrainArguments& arguments, const DataSources& data, int ranks) {
  check_run_directory(arguments.out, arguments.resume);
  const TrainerOptions options = trainer_options(arguments, *data.train, ranks);
  TrainSampler(data.train->size(), options.split, 0, {.short_batch = options.short_batch});
  if (arguments.resume.empty()) return;
  const CheckpointInfo info = checkpoint_of("--resume", arguments.resume, arguments.model);
  expect(info.data == data.train->info().name && info.data_size == data.train->size(),
         "--resume {}: expected the data it was trained on, {} ({} samples), got {} ({})", arguments.resume, info.data,
         info.data_size, data.train->info().name, data.train->size());
  expect(info.seed == arguments.seed, "--resume {}: expected the seed it was trained with, {}, got {} in config.json",
         arguments.resume, info.seed, arguments.seed);
  expect(info.step <= options.steps, "--resume {}: expected at least the {} steps that are done, got {}",
         arguments.resume, info.step, options.steps);
}

void run_rank(const TrainArguments& arguments, const DataSources& data, const Placement& placement,
              const LinkPolicy& policy) {
  Context context(context_of(arguments.device, placement));
  const ContextScope scope(context);
  context.random.seed = arguments.seed;
  World world(placement.environment, {.timeout = kRankDeadline}, option_lines("train " + arguments.model, arguments));
  world.run([&] { train_as(arguments, data, policy, world); });
}

}  // namespace

std::function<int(char** argv)> add_train_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a model on one or many ranks");
  auto arguments = std::make_shared<TrainArguments>();
  command->add_option("MODEL", arguments->model, fmt::format("{}", fmt::join(model_names(), ", ")))->required();
  add_options(*command, *arguments);
  command->add_option("--out", arguments->out, "run directory; default: runs/MODEL-TIME")
      ->check(whole_value<std::string>);
  command
      ->add_option(
          "--resume", arguments->resume,
          "run directory to continue; its options hold where none is given, but for --device, --ranks, --threads "
          "and --link")
      ->check(whole_value<std::string>);

  return [command, arguments](char** argv) {
    expect_known("model", arguments->model, model_names());
    if (!arguments->resume.empty()) inherit_options(*command, *arguments);
    check(*arguments);
    const LinkPolicy policy = switch_link(arguments->link);
    const Placement placement = resolve_placement(arguments->device);
    if (placement.speaks_for_all()) print_kept_settings(policy);
    check_device(arguments->step, placement.device);
    const DataSources data = open_data(arguments->data, arguments->model, arguments->seed);
    // What is wrong for every rank is said once, before there are any.
    if (placement.environment.launcher != Launcher::lockstep) {
      preflight(*arguments, data, placement.environment.world_size);
    }
    if (placement.must_launch()) {
      // Nor can ranks be started where another run writes.
      if (!arguments->resume.empty()) RunDirectory(arguments->out, arguments->resume, arguments->model);
      return launch(placement.environment.world_size, argv);
    }
    run_rank(*arguments, data, placement, policy);
    return 0;
  };
}

}  // namespace lockstep::cli
