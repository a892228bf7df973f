#include "cli/all_reduce_command.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/all_reduce_report.h"
#include "cli/arguments.h"
#include "cli/emulation.h"
#include "cli/json_file.h"
#include "cli/link_option.h"
#include "cli/link_report.h"
#include "cli/link_witness.h"
#include "cli/output_files.h"
#include "cli/placement.h"
#include "cli/workload.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/gpu.h"
#include "framework/core/nearest_name.h"
#include "framework/distributed/agreement.h"
#include "framework/distributed/launcher.h"
#include "framework/distributed/world.h"
#include "framework/interconnect/copy_bandwidth.h"
#include "framework/interconnect/emulated_group.h"
#include "framework/interconnect/link_probe.h"
#include "framework/interconnect/topology.h"
#include "models/registry.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kMostSizes = 10'000;
constexpr int kMostFactor = 1 << 20;  // times the largest size it still fits into 64 bits

struct AllReduceArguments {
  DeviceArguments device;
  LinkArguments link;
  EmulationArguments emulation;
  BucketArguments buckets;
  std::optional<std::string> min_bytes, max_bytes, step_bytes;
  std::optional<int> step_factor;
  std::optional<int> iterations, warmup;
  std::string dtype = "float";
  std::string op = "sum";
  int check = 1;
  std::string model;
  std::string json;
};

template <class Visitor>
void visit_fields(AllReduceArguments& arguments, Visitor&& visit) {
  visit_fields(arguments.device, visit);
  visit_fields(arguments.link, visit);
  visit_fields(arguments.emulation, visit);
  visit("-b,--minbytes", arguments.min_bytes, "smallest size, such as 8, 64K, 1M; default: 32M, or 8 without -e");
  visit("-e,--maxbytes", arguments.max_bytes,
        "largest size; default: 32M, or without -b 256M on GPUs and 1M on CPU ranks");
  visit("-i,--stepbytes", arguments.step_bytes, "from one size to the next; default: 1M");
  visit("-f,--stepfactor", arguments.step_factor,
        "instead of -i: factor from one size to the next; default without -b and -e: 2");
  visit("-n,--iters", arguments.iterations, "timed iterations; default: 20, emulated 3");
  visit("-w,--warmup_iters", arguments.warmup, "iterations before; default: 5, emulated 1");
  visit("-d,--datatype", arguments.dtype, "float, or on GPUs bfloat16");
  visit("-o,--op", arguments.op, "sum, max or min");
  visit("-c,--check", arguments.check, "1: check the results, 0: do not");
  visit("--model", arguments.model, "the sizes of this model's buckets of gradients instead of -b, -e, -i, -f");
  visit_fields(arguments.buckets, visit);
}

// "64K" as nccl-tests reads it: units of 1024.
std::int64_t parse_bytes(const char* option, const std::string& text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  auto [stop, failure] = std::from_chars(text.data(), end, value);
  std::int64_t unit = 1;
  if (stop + 1 == end) {
    const std::size_t place = std::string_view("kmg").find(static_cast<char>(std::tolower(*stop)));
    if (place != std::string_view::npos) {
      unit = std::int64_t{1024} << (10 * place);
      ++stop;
    }
  }
  constexpr std::int64_t kMost = std::int64_t{64} << 30;
  expect(failure == std::errc{} && stop == end && value >= 1 && value <= kMost / unit,
         "{}: expected a size such as 8, 64K, 1M or 1G, got '{}'", option, text);
  return value * unit;
}

AllReduceTest test_of(const AllReduceArguments& arguments) {
  const bool emulated = !arguments.emulation.emulate.empty();
  return {.dtype = arguments.dtype == "bfloat16" || arguments.dtype == "bf16" ? DType::bf16 : DType::f32,
          .op = arguments.op == "max"   ? ReduceOp::max
                : arguments.op == "min" ? ReduceOp::min
                                        : ReduceOp::sum,
          .iterations = arguments.iterations.value_or(emulated ? 3 : 20),
          .warmup = arguments.warmup.value_or(emulated ? 1 : 5),
          .check = arguments.check != 0};
}

// In whole elements, each once.
std::vector<std::int64_t> sizes_of(const AllReduceArguments& arguments, DeviceType device, DType dtype) {
  const std::int64_t width = dtype_bytes(dtype);
  std::vector<std::int64_t> sizes;
  if (!arguments.model.empty()) {
    for (const std::int64_t count : bucket_elements(arguments.model, arguments.buckets)) sizes.push_back(count * width);
  } else {
    const bool whole_range = !arguments.min_bytes && !arguments.max_bytes;
    const std::string largest = device == DeviceType::cuda ? "256M" : "1M";
    const std::int64_t first = parse_bytes("-b", arguments.min_bytes.value_or(whole_range ? "8" : "32M"));
    const std::int64_t last = parse_bytes("-e", arguments.max_bytes.value_or(whole_range ? largest : "32M"));
    const std::int64_t step = parse_bytes("-i", arguments.step_bytes.value_or("1M"));
    const int factor = arguments.step_factor.value_or(whole_range && !arguments.step_bytes ? 2 : 1);
    expect(first <= last, "-b, -e: expected the smallest size first, got {} and {}", first, last);
    for (std::int64_t size = first; size <= last; size = factor > 1 ? size * factor : size + step) {
      sizes.push_back(std::max(size, width));
      expect(sizes.size() <= kMostSizes, "-b, -e, -i, -f: expected at most {} sizes, got more", kMostSizes);
    }
  }
  for (std::int64_t& size : sizes) size -= size % width;
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

void check(const AllReduceArguments& arguments) {
  check(arguments.emulation);
  check(arguments.buckets);
  expect_known("-d", arguments.dtype, {"float", "f32", "bfloat16", "bf16"});
  expect_known("-o", arguments.op, {"sum", "max", "min"});
  expect(arguments.check == 0 || arguments.check == 1, "-c: expected 0 or 1, got {}", arguments.check);
  expect(arguments.iterations.value_or(1) >= 1 && arguments.warmup.value_or(0) >= 0,
         "-n, -w: expected at least 1 and 0, got {} and {}", arguments.iterations.value_or(1),
         arguments.warmup.value_or(0));
  const int factor = arguments.step_factor.value_or(2);
  expect(factor >= 1 && factor <= kMostFactor, "-f: expected from 1 to {}, got {}", kMostFactor, factor);
  expect(!arguments.step_bytes || !arguments.step_factor, "-i, -f: expected one of them, got both");
  if (arguments.model.empty()) return;
  expect_known("model", arguments.model, model_names());
  expect(!arguments.min_bytes && !arguments.max_bytes && !arguments.step_bytes && !arguments.step_factor,
         "--model {}: expected none of -b, -e, -i, -f, since the model says which sizes there are", arguments.model);
}

std::string device_text(const ProcessGroup& group) {
  if constexpr (kernels::kHasCuda) {
    if (context().device() == DeviceType::cuda) {
      return fmt::format("{} x {}, {}", group.size(), selected_gpu().name, group.backend());
    }
  }
  return fmt::format("{} CPU rank{}, {}", group.size(), group.size() == 1 ? "" : "s", group.backend());
}

// Peak and sharing of the link that carries the ranks' bytes, as far as it is known which that is. Collective.
void describe_link(SweepDescription& sweep, const LinkProof& proof, ProcessGroup& group) {
  if constexpr (kernels::kHasCuda) {
    const std::vector<std::string> gpus = gather_texts(group, "GPU", selected_gpu().uuid);
    if (proof.mode == LinkMode::automatic && proof.verdict != Verdict::proven) return;
    const Topology topology = read_topology();
    const double nvlink_peak = topology.nvlink_peak_gb_s(gpus);
    const bool nvlink = proof.verdict == Verdict::proven ? proof.over_nvlink : proof.mode == LinkMode::nvlink;
    if (nvlink && nvlink_peak <= 0) return;
    sweep.shared_link = !nvlink;
    if (proof.mode != LinkMode::net) sweep.peak_gb_s = nvlink ? nvlink_peak : topology.pcie_peak_gb_s(gpus);
  }
}

void measure_as(const AllReduceArguments& arguments, const LinkPolicy& policy, World& world) {
  const AllReduceTest test = test_of(arguments);
  const std::vector<std::int64_t> sizes = sizes_of(arguments, context().device(), test.dtype);
  SweepDescription sweep{
      .link = arguments.link.link, .device = device_text(world.group()), .ranks = world.size(), .test = test};
  std::optional<LinkProof> proof;
  if (context().device() == DeviceType::cuda || arguments.link.require_proof) {
    proof = LinkWitness(arguments.link, world).probe();
  }
  if (context().device() == DeviceType::cuda) {
    sweep.path = policy.description;
    describe_link(sweep, *proof, world.group());
  }
  std::optional<EmulatedGroup> emulated;
  if (!arguments.emulation.emulate.empty()) {
    const PublishedLink link = emulated_links(arguments.emulation.emulate)[0];
    const std::vector<CostModel> models{cost_model_of(link)};
    sweep.link = link.name;
    sweep.path = link.path;
    sweep.peak_gb_s = link.peak;
    sweep.shared_link = link.shared;
    sweep.emulated = true;
    sweep.slow_motion = arguments.emulation.slow_motion ? *arguments.emulation.slow_motion
                                                        : choose_slow_motion(world.group(), sizes, models);
    emulated.emplace(world.group(), models[0], sweep.slow_motion);
  }
  ProcessGroup& group = emulated ? *emulated : world.group();

  const auto show = [&](const std::string& text) {
    if (world.rank() != 0) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  };
  show(sweep_header(sweep));
  if (proof) show(fmt::format("# {}\n", describe(policy, *proof)));
  AllReduceSweep measuring(group, sizes.back(), test);
  std::vector<AllReduceRow> rows;
  for (const std::int64_t bytes : sizes) {
    rows.push_back(without_slow_motion(measuring.measure(bytes), sweep.slow_motion));
    show(sweep_line(sweep, rows.back()));
  }
  show(sweep_footer(sweep, rows));
  nlohmann::ordered_json json = sweep_json(sweep, rows);
  if (proof) json["probe"] = to_json(*proof);
  if (emulated) json["late"] = emulated->late();
  if (emulated && emulated->late() > 0) {
    show(fmt::format("# {} collectives took the ranks longer than the emulated link\n", emulated->late()));
  }
  if constexpr (kernels::kHasCuda) {
    if (context().device() == DeviceType::cuda) {
      world.group().barrier().wait();
      const CopyBandwidth copies = measure_copies();
      show(fmt::format(
          "# Copies by rank 0's GPU, all ranks at once: host to device {:.1f} GB/s, device to host {:.1f} GB/s\n",
          copies.host_to_device, copies.device_to_host));
      json["host_to_device_gb_s"] = copies.host_to_device;
      json["device_to_host_gb_s"] = copies.device_to_host;
    }
  }
  if (world.rank() == 0 && !arguments.json.empty()) write_json_file("--json", arguments.json, json);
  if (json["wrong"] != 0) throw Error("all-reduce: results were wrong");
}

}  // namespace

std::function<int(char** argv)> add_all_reduce_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("all-reduce", "Times all-reduces: the flags and columns of nccl-tests");
  auto arguments = std::make_shared<AllReduceArguments>();
  add_options(*command, *arguments);
  command->add_option("-g,--ngpus", arguments->device.ranks, "the same as --ranks")
      ->check(whole_value<int>)
      ->excludes("--ranks");
  command->add_option("--json", arguments->json, "write the table to this file")->check(whole_value<std::string>);

  return [arguments](char** argv) {
    check(*arguments);
    if (!arguments->emulation.emulate.empty()) {
      expect(emulated_links(arguments->emulation.emulate).size() == 1, "--emulate: expected one link, got {}",
             arguments->emulation.emulate);
      expect(!arguments->link.require_proof,
             "--require-proof: expected a real link, got --emulate {}, which carries nothing that could be proven",
             arguments->emulation.emulate);
      place_on_cpu_ranks(arguments->device);
    }
    const LinkPolicy policy = switch_link(arguments->link);
    const Placement placement = resolve_placement(arguments->device);
    if (placement.speaks_for_all()) {
      check_outputs({{"--json", arguments->json}});
      print_kept_settings(policy);
    }
    const DType dtype = test_of(*arguments).dtype;
    expect(dtype == DType::f32 || placement.device == DeviceType::cuda,
           "-d bfloat16: expected GPUs, got CPU ranks, whose gradients are f32");
    sizes_of(*arguments, placement.device, dtype);  // throws where there are none
    if (placement.must_launch()) return launch(placement.environment.world_size, argv);
    Context context(context_of(arguments->device, placement));
    const ContextScope scope(context);
    World world(placement.environment, {.timeout = kRankDeadline}, option_lines("all-reduce", *arguments));
    world.run([&] { measure_as(*arguments, policy, world); });
    return 0;
  };
}

}  // namespace lockstep::cli
