#include "cli/compare_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cli/compare_case.h"
#include "cli/compare_report.h"
#include "cli/emulation.h"
#include "cli/json_file.h"
#include "cli/link_report.h"
#include "cli/list_option.h"
#include "cli/output_files.h"
#include "cli/placement.h"
#include "cli/report/report.h"
#include "cli/sweep_file.h"
#include "cli/topology_json.h"
#include "framework/core/error.h"
#include "framework/core/exit_codes.h"
#include "framework/core/nearest_name.h"
#include "framework/core/version.h"
#include "framework/distributed/gpu_assignment.h"
#include "framework/interconnect/link_policy.h"
#include "framework/interconnect/nvlink_presence.h"
#include "framework/interconnect/topology.h"
#include "framework/interconnect/visible_gpus.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

struct CompareArguments {
  std::string model;
  DeviceArguments device;
  std::string ranks;
  std::optional<std::string> precision;
  std::string links;
  EmulationArguments emulation;
  bool require_proof = false;
  WorkloadArguments workload;
  std::string sweep;
  int repeats = 5;
  std::optional<int> steps, warmup;
  std::string json;
  std::string report;
};

template <class Visitor>
void visit_fields(CompareArguments& arguments, Visitor&& visit) {
  visit("--links", arguments.links, "two of auto, nvlink, pcie, net; default: nvlink,pcie");
  visit("--emulate", arguments.emulation.emulate,
        "two emulated links between CPU ranks instead, such as nvlink4,pcie5");
  visit("--slow-motion", arguments.emulation.slow_motion, "factor on all emulated times; default: what the ranks need");
  visit("--ranks", arguments.ranks, "ranks, or several numbers of them such as 1,2,4; default: every GPU, emulated 2");
  visit("--repeats", arguments.repeats, "runs of each arm");
  visit("--steps", arguments.steps, "timed steps of a run; default: about a second of them");
  visit("--warmup", arguments.warmup, "steps before; default: 5, emulated 2");
  visit("--sweep", arguments.sweep, "batch: from a quarter of --batch-per-rank to 4 times as many");
  visit("--require-proof", arguments.require_proof, "end with exit code 3 where a link cannot be proven");
  visit_fields(arguments.workload, visit);
  visit_fields(arguments.device, [&](const char* name, auto& field, const char* help) {
    const std::string_view own[] = {"--ranks", "--precision"};
    if (std::find(std::begin(own), std::end(own), name) == std::end(own)) visit(name, field, help);
  });
  visit("--precision", arguments.precision, "f32, tf32 or bf16; default: bf16 on GPUs, f32 on CPU ranks");
  visit("--json", arguments.json, "write everything to this file");
  visit("--report", arguments.report, "write a page, such as report.html; beside it the same as .md and .json");
}

std::array<std::string, 2> two_of(const char* option, const std::string& list) {
  const std::vector<std::string> parts = split_list(list);
  expect(parts.size() == 2, "{}: expected two links such as {}, got '{}'", option,
         std::string_view(option) == "--links" ? "nvlink,pcie" : "nvlink4,pcie5", list);
  return {parts[0], parts[1]};
}

// What can be run here instead.
constexpr const char* kInstead = "or compare emulated links between CPU ranks: --emulate nvlink4,pcie5";

// Real links need GPUs, and NVLink where it is asked for.
int gpus_for(const CompareSetup& setup) {
  const auto nvml = Nvml::open();
  const std::size_t seen = nvml ? visible_gpus(**nvml).size() : 0;
  const bool wants_nvlink = std::find(setup.links.begin(), setup.links.end(), "nvlink") != setup.links.end();
  if (wants_nvlink && seen >= 2 && nvlink_presence() == NvlinkPresence::absent) {
    throw LinkContradiction(
        fmt::format("compare --links {},{}: the GPUs of this host are not joined by NVLink (see lockstep topology); "
                    "compare --links pcie,net, {}",
                    setup.links[0], setup.links[1], kInstead));
  }
  DeviceArguments device = setup.device;
  device.precision = "f32";               // which any device has
  if (seen >= 2) device.device = "cuda";  // then it is said why they cannot be used
  const Placement placement = resolve_placement(device);
  if (placement.visible_gpus == 1 && gpus_are_shared()) {
    for (const std::string& link : setup.links) link_policy(parse_link_mode(link));  // throws for what is not there
    return 2;
  }
  expect(placement.visible_gpus >= 2, "compare: expected at least 2 GPUs, got {}; use a machine that has them, {}",
         std::max(static_cast<int>(seen), placement.visible_gpus), kInstead);
  return placement.visible_gpus;
}

CompareSetup setup_of(const CompareArguments& arguments) {
  CompareSetup setup{.device = arguments.device,
                     .require_proof = arguments.require_proof,
                     .repeats = arguments.repeats,
                     .steps = arguments.steps,
                     .warmup = arguments.warmup};
  expect(arguments.links.empty() || arguments.emulation.emulate.empty(), "expected --links or --emulate, got both");
  setup.emulated = !arguments.emulation.emulate.empty();
  setup.device.precision = arguments.precision.value_or(setup.emulated ? "f32" : "bf16");
  if (setup.emulated) {
    setup.links = two_of("--emulate", arguments.emulation.emulate);
    for (const std::string& link : setup.links) published_link(link);
    place_on_cpu_ranks(setup.device);
    return setup;
  }
  setup.links = two_of("--links", arguments.links.empty() ? "nvlink,pcie" : arguments.links);
  for (const std::string& link : setup.links) parse_link_mode(link);
  return setup;
}

void check(const CompareArguments& arguments) {
  check(arguments.emulation);
  expect(arguments.repeats >= 2, "--repeats: expected at least 2, got {}: one run has no interval", arguments.repeats);
  check_counts(arguments.steps, arguments.warmup);
  expect(!arguments.require_proof || arguments.emulation.emulate.empty(),
         "--require-proof: expected real links, got --emulate {}, which carries nothing that could be proven",
         arguments.emulation.emulate);
  if (!arguments.sweep.empty()) expect_known("--sweep", arguments.sweep, {"batch"});
  std::vector<OutputFile> outputs;
  const std::string report_json = arguments.report.empty() ? "" : beside(arguments.report, ".json");
  if (!arguments.report.empty()) {
    check_report_name("--report", arguments.report);
    for (const std::string& file : {arguments.report, beside(arguments.report, ".md"), report_json})
      outputs.push_back({"--report", file});
  }
  if (arguments.json != report_json) outputs.push_back({"--json", arguments.json});  // they hold the same
  check_outputs(std::move(outputs));
  expect(!arguments.model.empty() || arguments.sweep.empty(), "--sweep {}: expected a MODEL", arguments.sweep);
}

struct Choice {
  const char* model;
  std::int64_t batch_per_rank;
};
// Without MODEL: a training that the link decides, one between, and one that it does not matter to.
constexpr Choice kOnGpus[] = {{"vgg16", 32}, {"vgg16", 128}, {"vgg16", 256}};
constexpr Choice kOnCpus[] = {{"mlp", 16}, {"mlp", 512}, {"lenet", 1024}};

std::vector<CompareCase> cases_of(const CompareArguments& arguments, const CompareSetup& setup,
                                  const std::vector<std::int64_t>& rank_counts) {
  std::vector<std::pair<std::string, WorkloadArguments>> works;
  const auto add = [&](const std::string& model, std::int64_t batch) {
    WorkloadArguments& workload = works.emplace_back(model, arguments.workload).second;
    workload.batch_per_rank = batch;
    check(model, workload);
    check_device(workload.step, setup.emulated ? DeviceType::cpu : DeviceType::cuda);
  };
  const std::int64_t batch = arguments.workload.batch_per_rank;
  if (arguments.model.empty()) {
    for (const Choice& choice : setup.emulated ? kOnCpus : kOnGpus) add(choice.model, choice.batch_per_rank);
  } else if (arguments.sweep.empty()) {
    add(arguments.model, batch);
  } else {
    check(arguments.model, arguments.workload);  // before it is multiplied
    for (const std::int64_t part : {batch / 4, batch / 2, batch, 2 * batch, 4 * batch}) {
      if (part > 0 || part == batch) add(arguments.model, part);
    }
  }
  std::vector<CompareCase> cases;
  for (const std::int64_t ranks : rank_counts) {
    for (const auto& [model, workload] : works) cases.emplace_back(setup, model, static_cast<int>(ranks), workload);
  }
  return cases;
}

void show(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

// Before anything is measured: processes that start, and steps of these cases, with all-reduces and without.
double rough_seconds(const CompareSetup& setup, std::size_t cases) {
  constexpr double kStart = 7;
  constexpr double kStep = 0.1;
  const double steps = setup.steps ? kStep * (*setup.steps + setup.warmup.value_or(5)) : 1.5;
  return static_cast<double>(cases * (2 * static_cast<std::size_t>(setup.repeats) + 1)) * (kStart + 2 * steps);
}

// The links' own speed at a number of ranks: measured, where they are there.
class LinkModels {
 public:
  LinkModels(const CompareSetup& setup, const ScratchDirectory& scratch) : setup_(setup), scratch_(scratch) {}

  struct Model {
    CostModel model;
    Json sweep;
  };
  const Model& of(const std::string& link, int ranks) {
    const auto [place, is_new] = models_.try_emplace({link, ranks});
    if (!is_new) return place->second;
    if (setup_.emulated) {
      place->second = {cost_model_of(published_link(link)), nullptr};
    } else {
      show(fmt::format("measuring {} on {} GPUs\n", link, ranks));
      place->second.sweep =
          run_own({"all-reduce", "--link", link, "--ranks", std::to_string(ranks), "-b", "1K", "-e", "512M", "-f", "2"},
                  scratch_);
      place->second.model = model_of_sweep(place->second.sweep);
    }
    return place->second;
  }

 private:
  const CompareSetup& setup_;
  const ScratchDirectory& scratch_;
  std::map<std::pair<std::string, int>, Model> models_;
};

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return {};
}

Json machine_json() {
  Json json = {{"processor", processor_name()}, {"cores", std::thread::hardware_concurrency()}};
  for (const BuildPart& part : build_parts()) json["versions"][std::string(part.name)] = std::string(part.version);
  json["topology"] = to_json(read_topology());
  return json;
}

void measure_links(const CompareSetup& setup, std::optional<double> slow_motion, std::vector<CompareCase>& cases,
                   const ScratchDirectory& scratch) {
  for (CompareCase& compared : cases) {
    show(fmt::format("{} of {}: {} samples a rank, without all-reduces\n", &compared - cases.data() + 1, cases.size(),
                     compared.batch_per_rank()));
    compared.measure_alone(scratch);
  }
  LinkModels models(setup, scratch);
  const double factor = slow_motion.value_or(std::accumulate(
      cases.begin(), cases.end(), 1.0,
      [](double most, const CompareCase& compared) { return std::max(most, compared.fitting_slow_motion()); }));
  for (CompareCase& compared : cases) {
    if (!compared.communicates()) continue;
    const LinkModels::Model& first = models.of(setup.links[0], compared.ranks());
    const LinkModels::Model& second = models.of(setup.links[1], compared.ranks());
    compared.predict({first.model, second.model}, {first.sweep, second.sweep}, factor);
  }
}

// Of the cases that have run.
Json json_of(std::span<const CompareCase> cases, bool several) {
  Json json = {{"command", "compare"}, {"version", std::string(version())}, {"machine", machine_json()}};
  if (!several) {
    json.update(cases.front().to_json());
    return json;
  }
  json["emulated"] = cases.front().setup().emulated;
  json["slow_motion"] = cases.front().slow_motion();
  json["cases"] = Json::array();
  for (const CompareCase& compared : cases) json["cases"].push_back(compared.to_json());
  return json;
}

void write_results(const CompareArguments& arguments, std::span<const CompareCase> cases, bool several) {
  const Json json = json_of(cases, several);
  if (!arguments.json.empty()) write_json_file("--json", arguments.json, json);
  const bool any =
      std::any_of(cases.begin(), cases.end(), [](const auto& compared) { return compared.communicates(); });
  if (arguments.report.empty() || !any) return;
  write_json_file("--report", beside(arguments.report, ".json"), json);
  write_report("--report", arguments.report, make_report(json, "compare"));
}

int compare(const CompareArguments& arguments) {
  check(arguments);
  expect_no_launcher("compare");
  CompareSetup setup = setup_of(arguments);
  std::vector<std::int64_t> rank_counts = whole_numbers("--ranks", arguments.ranks);
  if (!setup.emulated) {
    const int gpus = gpus_for(setup);
    if (rank_counts.empty()) rank_counts = {gpus};
    setup.device.device = "cuda";
    for (const std::string& link : setup.links) print_kept_settings(link_policy(parse_link_mode(link)));
  }
  if (rank_counts.empty()) rank_counts = {2};
  DeviceArguments most = setup.device;
  most.ranks = static_cast<int>(*std::max_element(rank_counts.begin(), rank_counts.end()));
  resolve_placement(most);  // throws where they cannot all be started
  expect(arguments.report.empty() || most.ranks > 1,
         "--report: expected at least 2 ranks somewhere, got 1, which has no link to compare");
  std::vector<CompareCase> cases = cases_of(arguments, setup, rank_counts);
  const bool several = cases.size() > 1;

  show(fmt::format("{} over {}{}: {} case{}, {} runs of each arm in turn{}\n", setup.links[0], setup.links[1],
                   setup.emulated ? ", emulated" : "", cases.size(), several ? "s" : "", setup.repeats,
                   arguments.model.empty() ? "; " + duration_text(rough_seconds(setup, cases.size())) : ""));
  const ScratchDirectory scratch;
  measure_links(setup, arguments.emulation.slow_motion, cases, scratch);
  double seconds = 0;
  for (const CompareCase& compared : cases) seconds += compared.estimated_seconds();
  show(fmt::format("{} to go\n", duration_text(seconds)));
  for (CompareCase& compared : cases) {
    if (compared.communicates()) compared.run(scratch);
    show("\n" + report(compared));
    // What comes next may fail.
    write_results(arguments, {cases.data(), static_cast<std::size_t>(&compared - cases.data()) + 1}, several);
  }
  if (several) show("\n" + summary(cases));
  const bool sufficient =
      std::all_of(cases.begin(), cases.end(), [&](const CompareCase& compared) { return compared.is_proven_enough(); });
  return sufficient ? 0 : kContradicted;
}

}  // namespace

std::function<int(char** argv)> add_compare_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("compare", "What a faster link is worth to a training");
  auto arguments = std::make_shared<CompareArguments>();
  command->add_option("MODEL", arguments->model,
                      fmt::format("{}; default: three trainings from bound by the link to bound by computing",
                                  fmt::join(model_names(), ", ")));
  add_options(*command, *arguments);
  return [arguments, command](char** /*argv*/) {
    expect(!arguments->model.empty() || command->get_option("--batch-per-rank")->empty(),
           "--batch-per-rank {}: expected a MODEL, got none, which compares three with batches of their own",
           arguments->workload.batch_per_rank);
    return compare(*arguments);
  };
}

}  // namespace lockstep::cli
