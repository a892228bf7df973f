#include "cli/eval_command.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/arguments.h"
#include "cli/checkpoints.h"
#include "cli/data_sources.h"
#include "cli/json_file.h"
#include "cli/link_option.h"
#include "cli/link_report.h"
#include "cli/link_witness.h"
#include "cli/output_files.h"
#include "cli/placement.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/nearest_name.h"
#include "framework/data/synthetic.h"
#include "framework/distributed/launcher.h"
#include "framework/distributed/world.h"
#include "framework/train/evaluate.h"
#include "framework/train/restore.h"
#include "models/registry.h"

namespace lockstep::cli {
namespace {

struct EvalArguments {
  std::string model;
  std::string checkpoint;
  std::string json;
  DeviceArguments device;
  LinkArguments link;
  DataArguments data;
  std::int64_t batch_per_rank = 256;
};

template <class Visitor>
void visit_fields(EvalArguments& arguments, Visitor&& visit) {
  visit_fields(arguments.device, visit);
  visit_fields(arguments.link, visit);
  visit_fields(arguments.data, visit);
  visit("--batch-per-rank", arguments.batch_per_rank, "samples of a rank in one forward pass");
}

void evaluate_as(const EvalArguments& arguments, const Dataset& dataset, const LinkPolicy& policy, World& world) {
  const LinkWitness witness(arguments.link, world);
  if (world.rank() == 0 && says_link(arguments.link)) fmt::print("{}\n", describe(policy, witness.probe()));
  const Model model =
      make_model(arguments.model, {.sample_shape = dataset.sample_shape(), .classes = dataset.num_classes()});
  const std::int64_t step = restore(arguments.checkpoint, *model.module, {}, world.group(), Surplus::ignore);
  const EvalResult result = evaluate(*model.module, model.logits, dataset, arguments.batch_per_rank, world.group());
  if (world.rank() != 0) return;
  fmt::print("{} after {} steps on {}: accuracy {:.4f}, loss {:.4f} ({} samples)\n", arguments.model, step,
             dataset.info().name, result.accuracy, result.loss, result.samples);
  if (!arguments.json.empty()) {
    const nlohmann::ordered_json json = {{"model", arguments.model},    {"step", step},
                                         {"accuracy", result.accuracy}, {"loss", result.loss},
                                         {"samples", result.samples},   {"ranks", world.size()}};
    write_json_file("--json", arguments.json, json);
  }
}

void run_rank(const EvalArguments& arguments, const Dataset& dataset, const Placement& placement,
              const LinkPolicy& policy) {
  Context context(context_of(arguments.device, placement));
  const ContextScope scope(context);
  World world(placement.environment, {.timeout = kRankDeadline}, option_lines("eval " + arguments.model, arguments));
  world.run([&] { evaluate_as(arguments, dataset, policy, world); });
}

}  // namespace

std::function<int(char** argv)> add_eval_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("eval", "Loss and accuracy of a checkpoint, each sample counted once");
  auto arguments = std::make_shared<EvalArguments>();
  command->add_option("MODEL", arguments->model, fmt::format("{}", fmt::join(model_names(), ", ")))->required();
  command->add_option("--checkpoint", arguments->checkpoint, "checkpoint, or a run directory: its newest")
      ->required()
      ->check(whole_value<std::string>);
  add_options(*command, *arguments);
  command->add_option("--json", arguments->json, "write the result to this file")->check(whole_value<std::string>);

  return [arguments](char** argv) {
    expect_known("model", arguments->model, model_names());
    expect(arguments->batch_per_rank >= 1, "--batch-per-rank: expected at least 1, got {}", arguments->batch_per_rank);
    const LinkPolicy policy = switch_link(arguments->link);
    const Placement placement = resolve_placement(arguments->device);
    if (placement.speaks_for_all()) {
      check_outputs({{"--json", arguments->json}});
      print_kept_settings(policy);
    }
    // Before ranks are started, so that what is wrong for all of them is said once.
    const CheckpointInfo info = checkpoint_of("--checkpoint", arguments->checkpoint, arguments->model);
    // Not on the default, whose classes are others.
    if (!arguments->data.data && info.data.starts_with(kSyntheticName)) arguments->data.synthetic = true;
    const std::unique_ptr<Dataset> dataset = open_validation_data(arguments->data, arguments->model, info.seed);
    if (placement.must_launch()) return launch(placement.environment.world_size, argv);
    run_rank(*arguments, *dataset, placement, policy);
    return 0;
  };
}

}  // namespace lockstep::cli
