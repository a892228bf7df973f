#include "cli/measure_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "cli/json_file.h"
#include "cli/link_report.h"
#include "cli/link_witness.h"
#include "cli/output_files.h"
#include "cli/placement.h"
#include "cli/timeline_json.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/gpu.h"
#include "framework/core/statistics.h"
#include "framework/core/version.h"
#include "framework/distributed/launcher.h"
#include "framework/distributed/world.h"
#include "framework/interconnect/emulated_group.h"
#include "framework/interconnect/silent_group.h"
#include "framework/train/plan_phase.h"
#include "framework/train/step_timing.h"

namespace lockstep::cli {
namespace {

// Instrumented steps cost a little more, so that they are not among those that are timed; a few of them are enough.
constexpr StepCount kInstrumented{.warmup = 2, .timed = 5};

std::string device_name() {
  if constexpr (kernels::kHasCuda) {
    if (context().device() == DeviceType::cuda) return selected_gpu().name;
  }
  return "CPU";
}

// Of each all-reduce of a step with this overlap.
std::vector<std::int64_t> all_reduce_bytes(TrainStep& step, Overlap overlap) {
  std::vector<std::int64_t> bytes;
  for (const auto& range : reduced_ranges(step.arena(), overlap)) {
    bytes.push_back(range.count * dtype_bytes(step.wire_dtype()));
  }
  return bytes;
}

// A new training of the same model.
struct Training {
  Training(const MeasureArguments& arguments, int rank, ProcessGroup& group, bool left_out, bool timeline)
      : workload(arguments.model, arguments.workload, rank), silent(group), step(workload.make_step(silent, timeline)) {
    if (left_out) silent.leave_out();
  }

  Workload workload;
  SilentGroup silent;
  std::unique_ptr<TrainStep> step;
};

class Measurement {
 public:
  Measurement(const MeasureArguments& arguments, const LinkPolicy& policy, World& world)
      : arguments_(arguments), world_(world) {
    if (!arguments.alone) witness_.emplace(arguments.link, world);
    if (!arguments.plan.empty()) use_plans(arguments.plan);
    json_ = {{"command", "measure"},
             {"version", std::string(version())},
             {"model", arguments.model},
             {"ranks", world.size()},
             {"device", context().device() == DeviceType::cuda ? "cuda" : "cpu"},
             {"device_name", device_name()},
             {"threads", context().exec().threads},
             {"options", to_json(arguments.workload)},
             {"link", to_json(policy)},
             {"emulate", arguments.emulation.emulate},
             {"emulated", !arguments.emulation.emulate.empty()},
             {"slow_motion", 1.0}};
    if (witness_) json_["probe"] = to_json(witness_->probe());
  }

  // Every rank; the figures are the same on all.
  nlohmann::ordered_json run() {
    if (!arguments_.alone) carried();
    measure(world_.group(), true);
    if (world_.rank() == 0) keep_plan();
    if (arguments_.alone && !arguments_.emulation.emulate.empty() && !arguments_.emulation.slow_motion) {
      json_["slow_motion"] = fitting_slow_motion();
    }
    return json_;
  }

  // Once the figures are written: see LinkWitness.
  void expect_proof() const {
    if (training_) witness_->expect_proof(*training_);
  }

 private:
  std::vector<CostModel> links() const {
    std::vector<CostModel> models;
    for (const PublishedLink& link : emulated_links(arguments_.emulation.emulate))
      models.push_back(cost_model_of(link));
    return models;
  }

  // Of the all-reduces of a step: the loss's and the gradients'.
  std::vector<std::int64_t> sizes() const {
    std::vector<std::int64_t> bytes{4};
    for (const auto& of_call : json_.at("all_reduces")) bytes.push_back(of_call);
    return bytes;
  }

  // For collectives by themselves, and for those behind a backward pass that keeps the processors busy.
  double fitting_slow_motion() {
    const double idle = choose_slow_motion(world_.group(), sizes(), links());
    if (world_.size() == 1) return idle;
    EmulatedGroup instant(world_.group(), links()[0], 1e-9);
    const Training training(arguments_, world_.rank(), instant, false, true);
    const StepTimeline timeline =
        measure_timeline(*training.step, training.workload.batch(), world_.group(), instrumented());
    return std::max(idle, choose_slow_motion(timeline.buckets, links(), world_.size()));
  }

  StepCount instrumented() const {
    return {.warmup = std::min(arguments_.warmup, kInstrumented.warmup),
            .timed = std::min(arguments_.steps, kInstrumented.timed)};
  }

  void carried() {
    std::optional<EmulatedGroup> emulated;
    if (!arguments_.emulation.emulate.empty()) {
      const double slow_motion = arguments_.emulation.slow_motion.value_or(1.0);
      emulated.emplace(world_.group(), links()[0], slow_motion);
      json_["slow_motion"] = slow_motion;
    }
    measure(emulated ? *emulated : world_.group(), false);
    if (emulated) json_["late"] = emulated->late();
  }

  void measure(ProcessGroup& group, bool left_out) {
    {
      const Training training(arguments_, world_.rank(), group, left_out, false);
      const StepCount count{.warmup = arguments_.warmup, .timed = arguments_.steps};
      json_["buckets"] = all_reduce_bytes(*training.step, Overlap::on);
      json_["all_reduces"] = all_reduce_bytes(*training.step, step_options(arguments_.workload.step).buckets.overlap);
      if (!left_out) witness_->begin();
      json_[left_out ? "alone_ms" : "step_ms"] =
          time_steps(*training.step, training.workload.batch(), world_.group(), count);
      if (!left_out) {
        const auto bytes = static_cast<double>((count.warmup + count.timed) * training.step->reduced_bytes());
        training_ = witness_->end(all_reduce_wire_bytes(bytes, world_.size()));
        json_["training"] = to_json(*training_);
      }
    }
    if (!arguments_.timeline) return;
    const Training training(arguments_, world_.rank(), group, left_out, true);
    json_[left_out ? "alone_timeline" : "timeline"] =
        timeline_json(measure_timeline(*training.step, training.workload.batch(), world_.group(), instrumented()));
  }

  void keep_plan() const {
    if (!arguments_.plan.empty() && !std::filesystem::exists(arguments_.plan)) save_plans(arguments_.plan);
  }

  const MeasureArguments& arguments_;
  World& world_;
  std::optional<LinkWitness> witness_;  // none where nothing is reduced
  std::optional<LinkProof> training_;
  nlohmann::ordered_json json_;
};

void print(const MeasureArguments& arguments, const nlohmann::ordered_json& figures) {
  const double alone = median_of(figures.at("alone_ms"));
  fmt::print("{} at {} samples a rank on {} ranks: ", arguments.model, arguments.workload.batch_per_rank,
             figures.at("ranks").get<int>());
  if (figures.contains("step_ms")) {
    const double step = median_of(figures.at("step_ms"));
    fmt::print("step {:.3f} ms, ", step);
    if (figures.at("ranks") == 1) {
      fmt::print("one rank sends nothing");
    } else {
      fmt::print("{:.3f} without its all-reduces, so {:.3f} exposed", alone, step - alone);
    }
  } else {
    fmt::print("step {:.3f} ms without its all-reduces", alone);
  }
  if (figures.at("emulated") == true) fmt::print("; {}", emulation_text(figures.at("slow_motion")));
  fmt::print("\n");
  if (const auto late = figures.value("late", std::int64_t{0}); late > 0) {
    fmt::print(
        "disturbed: {} collectives took these ranks longer than the emulated link; a larger --slow-motion helps\n",
        late);
  }
}

void check(const MeasureArguments& arguments) {
  check(arguments.model, arguments.workload);
  check_counts(arguments.steps, arguments.warmup);
  check(arguments.emulation);
  if (arguments.emulation.emulate.empty()) return;
  expect(arguments.alone || emulated_links(arguments.emulation.emulate).size() == 1,
         "--emulate: expected one link, got {}", arguments.emulation.emulate);
}

}  // namespace

std::function<int(char** argv)> add_measure_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("measure", "Times the steps of a training, with and without all-reduces: one arm of compare");
  auto arguments = std::make_shared<MeasureArguments>();
  command->add_option("MODEL", arguments->model, fmt::format("{}", fmt::join(model_names(), ", ")))->required();
  add_options(*command, *arguments);

  return [arguments](char** argv) {
    check(*arguments);
    if (!arguments->emulation.emulate.empty()) place_on_cpu_ranks(arguments->device);
    const LinkPolicy policy = switch_link(arguments->link);
    const Placement placement = resolve_placement(arguments->device);
    check_device(arguments->workload.step, placement.device);
    if (placement.speaks_for_all()) {
      std::error_code ignored;
      const bool reads_plan = std::filesystem::is_regular_file(arguments->plan, ignored);
      check_outputs({{"--json", arguments->json}, {"--plan", reads_plan ? "" : arguments->plan}});
      print_kept_settings(policy);
    }
    if (placement.must_launch()) return launch(placement.environment.world_size, argv);
    Context context(context_of(arguments->device, placement));
    const ContextScope scope(context);
    context.random.seed = arguments->workload.seed;
    World world(placement.environment, {.timeout = kRankDeadline},
                option_lines("measure " + arguments->model, *arguments));
    world.run([&] {
      Measurement measurement(*arguments, policy, world);
      const nlohmann::ordered_json figures = measurement.run();
      if (world.rank() == 0) {
        print(*arguments, figures);
        if (!arguments->json.empty()) write_json_file("--json", arguments->json, figures);
      }
      measurement.expect_proof();
    });
    return 0;
  };
}

}  // namespace lockstep::cli
