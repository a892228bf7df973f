#include "cli/topology_command.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/arguments.h"
#include "cli/json_file.h"
#include "cli/output_files.h"
#include "cli/printable.h"
#include "cli/topology_json.h"
#include "framework/core/exit_codes.h"
#include "framework/core/version.h"
#include "framework/interconnect/topology.h"

namespace lockstep::cli {
namespace {

struct TopologyArguments {
  bool check = false;
  std::string json;
};

std::string describe(const PcieLink& link) {
  return link.generation > 0 ? fmt::format("{} x{}", link.generation, link.width) : "?";
}

std::string describe_nvlinks(const GpuNode& gpu) {
  if (gpu.nvlinks == 0) return "none";
  return fmt::format("gen {}, {} of {}", gpu.nvlink_generation > 0 ? std::to_string(gpu.nvlink_generation) : "?",
                     gpu.active_nvlinks, gpu.nvlinks);
}

std::string describe_bytes(std::uint64_t bytes) {
  constexpr double kMib = 1024.0 * 1024.0;
  return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / kMib);
}

std::string describe(const BuildPart& part) {
  return part.present() ? fmt::format("{} {}", part.name, part.version) : fmt::format("no {}", part.name);
}

void print_gpus(const Topology& topology) {
  fmt::print("GPUs\n  {:>2}  {:<28} {:<13} {:<16} {:<13} {:<13} {}\n", "", "name", "bus id", "NVLink", "PCIe now",
             "PCIe most", "NUMA");
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
    const GpuNode& gpu = topology.gpus[i];
    fmt::print("  {:>2}  {:<28} {:<13} {:<16} {:<13} {:<13} {}\n", i, gpu.name, gpu.bus_id, describe_nvlinks(gpu),
               describe(gpu.pcie_now), describe(gpu.pcie_most),
               gpu.numa_node >= 0 ? std::to_string(gpu.numa_node) : "-");
  }
  const int fabric = topology.gpus.front().fabric_state;
  if (fabric > 0) {
    fmt::print("NVSwitches: {}\n", fabric == 3 ? "set up" : fabric == 2 ? "being set up" : "not set up");
  }
  if (!topology.pairs.empty()) fmt::print("Pairs\n");
  for (const GpuPair& pair : topology.pairs) fmt::print("  {}\n", describe_pair(pair));
}

void print(const Topology& topology) {
  if (!topology.gpus.empty()) {
    fmt::print("Driver {}, for CUDA {}.{} and older\n", topology.driver.empty() ? "unknown" : topology.driver,
               topology.cuda_version / 1000, topology.cuda_version % 1000 / 10);
    print_gpus(topology);
  }
  fmt::print("This build: {}, {}\n", describe(build_part("CUDA")), describe(build_part("NCCL")));
  fmt::print("Host: /dev/shm {} (NCCL may need {} to stage); container: {}; virtual machine: {}\n",
             describe_bytes(topology.shm_bytes), describe_bytes(topology.shm_need_bytes),
             topology.container.empty() ? "no sign of one" : topology.container,
             topology.virtual_machine.empty() ? "no sign of one" : topology.virtual_machine);
  fmt::print("NCCL settings in force:{}\n", topology.nccl_settings.empty() ? " none" : "");
  for (const NcclSetting& setting : topology.nccl_settings) {
    fmt::print("  {}={}  ({})\n", setting.name, printable(setting.value), printable(setting.source));
  }
  for (const auto& file : topology.nccl_files) fmt::print("  (from the file {})\n", file.string());
  for (const TopologyFinding& finding : topology.findings) {
    fmt::print("{}: {}\n", kind_name(finding.kind), finding.what);
    if (!finding.remedy.empty()) fmt::print("  -> {}\n", finding.remedy);
  }
}

}  // namespace

std::function<int(char** argv)> add_topology_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("topology", "What joins the GPUs of this host, and what is wrong with it");
  auto arguments = std::make_shared<TopologyArguments>();
  command->add_flag("--check", arguments->check, "end with exit code 3 where there is a fault");
  command->add_option("--json", arguments->json, "write everything to this file")->check(whole_value<std::string>);

  return [arguments](char** /*argv*/) {
    check_outputs({{"--json", arguments->json}});
    const Topology topology = read_topology();
    print(topology);
    if (!arguments->json.empty()) write_json_file("--json", arguments->json, to_json(topology));
    return arguments->check && topology.has_fault() ? kContradicted : 0;
  };
}

}  // namespace lockstep::cli
