#include "cli/topology_json.h"

#include <fmt/format.h>

#include <array>
#include <climits>
#include <cstdint>

#include "cli/json_value.h"

namespace lockstep::cli {
namespace {

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

Json to_json(const PcieLink& link) {
  return {{"generation", link.generation}, {"width", link.width}, {"peak_gb_s", link.peak_gb_s()}};
}

PcieLink pcie_link_of(const Json& json) {
  return {.generation = value_of<int>(json, "generation"), .width = value_of<int>(json, "width")};
}

GpuNode gpu_of(const Json& json) {
  GpuNode gpu;
  gpu.name = value_of<std::string>(json, "name", "GPU of an unknown name");
  gpu.uuid = value_of<std::string>(json, "uuid");
  gpu.bus_id = value_of<std::string>(json, "bus_id");
  gpu.compute_capability = value_of<int>(json, "compute_capability");
  gpu.nvlinks = value_of<int>(json, "nvlinks");
  gpu.active_nvlinks = value_of<int>(json, "active_nvlinks");
  gpu.cpu_nvlinks = value_of<int>(json, "cpu_nvlinks");
  gpu.nvlink_generation = value_of<int>(json, "nvlink_generation");
  gpu.nvlink_gb_s = value_of<double>(json, "nvlink_gb_s");
  gpu.nvswitch = value_of<bool>(json, "nvswitch");
  gpu.pcie_now = pcie_link_of(entry_of(json, "pcie_now"));
  gpu.pcie_most = pcie_link_of(entry_of(json, "pcie_most"));
  gpu.numa_node = value_if<int>(json, "numa_node", {-1, INT_MAX}).value_or(-1);
  gpu.mig = value_of<bool>(json, "mig");
  gpu.fabric_state = value_of<int>(json, "fabric_state");
  gpu.virtualization = value_of<int>(json, "virtualization");
  for (const Json& process : elements_of(json, "processes")) {
    gpu.processes.push_back(read_value<unsigned>(process, "processes"));
  }
  return gpu;
}

GpuPair pair_of(const Json& json) {
  GpuPair pair;
  pair.a = value_of<int>(json, "a");
  pair.b = value_of<int>(json, "b");
  const std::string path = value_of<std::string>(json, "path");
  for (const GpuPath known : {GpuPath::nvlink, GpuPath::nvswitch, GpuPath::pcie_p2p}) {
    if (path == gpu_path_name(known)) pair.path = known;
  }
  const std::string pcie_path = value_of<std::string>(json, "pcie_path");
  for (const PciePath known : {PciePath::same_board, PciePath::one_switch, PciePath::switches, PciePath::host_bridge,
                               PciePath::numa_node, PciePath::system}) {
    if (pcie_path == pcie_path_name(known)) pair.pcie_path = known;
  }
  pair.nvlinks = value_of<int>(json, "nvlinks");
  pair.most_nvlinks = value_of<int>(json, "most_nvlinks");
  pair.peer_access = value_if<bool>(json, "peer_access");
  pair.peer_obstacle = value_of<std::string>(json, "peer_obstacle");
  pair.peak_gb_s = value_of<double>(json, "peak_gb_s");
  pair.expected_gb_s = value_of<double>(json, "expected_gb_s");
  return pair;
}

TopologyFinding finding_of(const Json& json) {
  TopologyFinding finding;
  const std::string kind = value_of<std::string>(json, "kind");
  for (const auto known : {TopologyFinding::Kind::fault, TopologyFinding::Kind::warning}) {
    if (kind == kind_name(known)) finding.kind = known;
  }
  finding.what = value_of<std::string>(json, "what");
  finding.remedy = value_of<std::string>(json, "remedy");
  return finding;
}

}  // namespace

const char* kind_name(TopologyFinding::Kind kind) {
  return kind == TopologyFinding::Kind::fault ? "fault" : kind == TopologyFinding::Kind::warning ? "warning" : "note";
}

std::string describe_pair(const GpuPair& pair) {
  std::string text = fmt::format("{}-{}: {}", pair.a, pair.b, gpu_path_name(pair.path));
  text += pair.nvlinks > 0 ? fmt::format(", {} of {} links", pair.nvlinks, pair.most_nvlinks)
                           : fmt::format(", PCIe path {}", pcie_path_name(pair.pcie_path));
  text += pair.peak_gb_s > 0 ? fmt::format(": {:.0f} GB/s in each direction at most, about {:.0f} expected",
                                           pair.peak_gb_s, pair.expected_gb_s)
                             : ": rate unknown";
  if (!pair.peer_access) return text + "; peer access: " + pair.peer_obstacle;
  return text + (*pair.peer_access ? "; peer access" : "; no peer access: " + pair.peer_obstacle);
}

nlohmann::ordered_json to_json(const Topology& topology) {
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
            {"nccl_files", Json::array()},
            {"findings", Json::array()}};
  for (const GpuNode& gpu : topology.gpus) {
    json["gpus"].push_back({{"name", gpu.name},
                            {"uuid", gpu.uuid},
                            {"bus_id", gpu.bus_id},
                            {"compute_capability", gpu.compute_capability},
                            {"nvlinks", gpu.nvlinks},
                            {"active_nvlinks", gpu.active_nvlinks},
                            {"cpu_nvlinks", gpu.cpu_nvlinks},
                            {"nvlink_generation", gpu.nvlink_generation},
                            {"nvlink_gb_s", gpu.nvlink_gb_s},
                            {"nvswitch", gpu.nvswitch},
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
                             {"peer_access", pair.peer_access ? Json(*pair.peer_access) : Json()},
                             {"peer_obstacle", pair.peer_obstacle},
                             {"peak_gb_s", pair.peak_gb_s},
                             {"expected_gb_s", pair.expected_gb_s},
                             {"verdict", describe_pair(pair)}});
  }
  for (const NcclSetting& setting : topology.nccl_settings) {
    json["nccl_settings"].push_back({{"name", setting.name}, {"value", setting.value}, {"source", setting.source}});
  }
  for (const auto& file : topology.nccl_files) json["nccl_files"].push_back(file.string());
  for (const TopologyFinding& finding : topology.findings) {
    json["findings"].push_back({{"kind", kind_name(finding.kind)}, {"what", finding.what}, {"remedy", finding.remedy}});
  }
  return json;
}

Topology topology_of(const nlohmann::ordered_json& json) {
  Topology topology;
  topology.why_no_gpus = value_of<std::string>(json, "why_no_gpus");
  topology.driver = value_of<std::string>(json, "driver");
  topology.cuda_version = value_of<int>(json, "cuda_version");
  for (const Json& gpu : elements_of(json, "gpus")) topology.gpus.push_back(gpu_of(gpu));
  for (const Json& pair : elements_of(json, "pairs")) topology.pairs.push_back(pair_of(pair));
  topology.shm_bytes = value_of<std::uint64_t>(json, "shm_bytes");
  topology.shm_need_bytes = value_of<std::uint64_t>(json, "shm_need_bytes");
  topology.container = value_of<std::string>(json, "container");
  topology.virtual_machine = value_of<std::string>(json, "virtual_machine");
  for (const Json& setting : elements_of(json, "nccl_settings")) {
    topology.nccl_settings.push_back({.name = value_of<std::string>(setting, "name"),
                                      .value = value_of<std::string>(setting, "value"),
                                      .source = value_of<std::string>(setting, "source")});
  }
  for (const Json& file : elements_of(json, "nccl_files")) {
    topology.nccl_files.emplace_back(read_value<std::string>(file, "nccl_files"));
  }
  for (const Json& finding : elements_of(json, "findings")) topology.findings.push_back(finding_of(finding));
  return topology;
}

}  // namespace lockstep::cli
