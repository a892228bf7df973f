#include "cli/topology_command.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/arguments.h"
#include "cli/json_file.h"
#include "framework/core/error.h"
#include "framework/core/version.h"
#include "framework/interconnect/topology.h"

namespace lockstep::cli {
namespace {

constexpr int kFault = 3;

struct TopologyArguments {
  bool check = false;
  std::string json;
};

const char* kind_name(TopologyFinding::Kind kind) {
  return kind == TopologyFinding::Kind::fault ? "fault" : kind == TopologyFinding::Kind::warning ? "warning" : "note";
}

// PIX ... SYS, as nvidia-smi topo writes it.
const char* pcie_path_name(const std::optional<PciePath>& path) {
  if (!path) return "unknown";
  switch (*path) {
    case PciePath::same_board:
      return "one board";
    case PciePath::one_switch:
      return "PIX (one PCIe switch)";
    case PciePath::switches:
      return "PXB (PCIe switches)";
    case PciePath::host_bridge:
      return "PHB (a host bridge)";
    case PciePath::numa_node:
      return "NODE (several host bridges)";
    case PciePath::system:
      return "SYS (between processors)";
  }
  return "unknown";
}

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

// "0-1: NVLink through NVSwitch, 18 of 18 links: 450 GB/s in each direction at most, about 396 expected"
std::string describe(const GpuPair& pair) {
  std::string text = fmt::format("{}-{}: {}", pair.a, pair.b, gpu_path_name(pair.path));
  text += pair.nvlinks > 0 ? fmt::format(", {} of {} links", pair.nvlinks, pair.most_nvlinks)
                           : fmt::format(", PCIe path {}", pcie_path_name(pair.pcie_path));
  text += pair.peak_gb_s > 0 ? fmt::format(": {:.0f} GB/s in each direction at most, about {:.0f} expected",
                                           pair.peak_gb_s, pair.expected_gb_s)
                             : ": rate unknown";
  return text + (pair.peer_obstacle.empty() ? "; peer access" : "; no peer access: " + pair.peer_obstacle);
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
  for (const GpuPair& pair : topology.pairs) fmt::print("  {}\n", describe(pair));
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
    fmt::print("  {}={}  ({})\n", setting.name, setting.value, setting.source);
  }
  for (const auto& file : topology.nccl_files) fmt::print("  (from the file {})\n", file.string());
  for (const TopologyFinding& finding : topology.findings) {
    fmt::print("{}: {}\n", kind_name(finding.kind), finding.what);
    if (!finding.remedy.empty()) fmt::print("  -> {}\n", finding.remedy);
  }
}

nlohmann::ordered_json to_json(const PcieLink& link) {
  return {{"generation", link.generation}, {"width", link.width}, {"peak_gb_s", link.peak_gb_s()}};
}

}  // namespace

nlohmann::ordered_json to_json(const Topology& topology) {
  using Json = nlohmann::ordered_json;
  Json json{{"why_no_gpus", topology.why_no_gpus},
            {"driver", topology.driver},
            {"cuda_version", topology.cuda_version},
            {"gpus", Json::array()},
            {"pairs", Json::array()},
            {"shm_bytes", topology.shm_bytes},
            {"shm_need_bytes", topology.shm_need_bytes},
            {"container", topology.container},
            {"virtual_machine", topology.virtual_machine},
            {"nccl_settings", Json::array()},
            {"findings", Json::array()}};
  for (const GpuNode& gpu : topology.gpus) {
    json["gpus"].push_back({{"name", gpu.name},
                            {"uuid", gpu.uuid},
                            {"bus_id", gpu.bus_id},
                            {"compute_capability", gpu.compute_capability},
                            {"nvlinks", gpu.nvlinks},
                            {"active_nvlinks", gpu.active_nvlinks},
                            {"nvlink_generation", gpu.nvlink_generation},
                            {"nvlink_gb_s", gpu.nvlink_gb_s},
                            {"pcie_now", to_json(gpu.pcie_now)},
                            {"pcie_most", to_json(gpu.pcie_most)},
                            {"numa_node", gpu.numa_node},
                            {"mig", gpu.mig},
                            {"fabric_state", gpu.fabric_state},
                            {"virtualization", gpu.virtualization},
                            {"processes", gpu.processes}});
  }
  for (const GpuPair& pair : topology.pairs) {
    json["pairs"].push_back({{"a", pair.a},
                             {"b", pair.b},
                             {"path", gpu_path_name(pair.path)},
                             {"nvlinks", pair.nvlinks},
                             {"most_nvlinks", pair.most_nvlinks},
                             {"pcie_path", pcie_path_name(pair.pcie_path)},
                             {"peer_obstacle", pair.peer_obstacle},
                             {"peak_gb_s", pair.peak_gb_s},
                             {"expected_gb_s", pair.expected_gb_s},
                             {"verdict", describe(pair)}});
  }
  for (const NcclSetting& setting : topology.nccl_settings) {
    json["nccl_settings"].push_back({{"name", setting.name}, {"value", setting.value}, {"source", setting.source}});
  }
  for (const TopologyFinding& finding : topology.findings) {
    json["findings"].push_back({{"kind", kind_name(finding.kind)}, {"what", finding.what}, {"remedy", finding.remedy}});
  }
  return json;
}

std::function<int(char** argv)> add_topology_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("topology", "What joins the GPUs of this host, and what is wrong with it");
  auto arguments = std::make_shared<TopologyArguments>();
  command->add_flag("--check", arguments->check, "end with exit code 3 where there is a fault");
  command->add_option("--json", arguments->json, "write everything to this file")->check(whole_value<std::string>);

  return [arguments](char** /*argv*/) {
    const Topology topology = read_topology();
    print(topology);
    if (!arguments->json.empty()) write_json_file("--json", arguments->json, to_json(topology));
    return arguments->check && topology.has_fault() ? kFault : 0;
  };
}

}  // namespace lockstep::cli
