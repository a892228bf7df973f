#include "framework/interconnect/topology_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace lockstep {
namespace {

using Kind = TopologyFinding::Kind;
using Findings = std::vector<TopologyFinding>;

constexpr int kFabricNotStarted = 1;
constexpr int kFabricInProgress = 2;

// Cards joined by a bridge may leave some links unused; a switch takes all, and so does another card of the kind.
bool should_have_more_links(const GpuNode& gpu, const std::vector<GpuNode>& gpus) {
  return gpu.nvswitch || std::any_of(gpus.begin(), gpus.end(), [&](const GpuNode& other) {
           return other.name == gpu.name && other.active_nvlinks > gpu.active_nvlinks;
         });
}

void look_at_gpu(const std::vector<GpuNode>& gpus, std::size_t index, Findings& findings) {
  const GpuNode& gpu = gpus[index];
  const std::string name = fmt::format("GPU {} ({}, {})", index, gpu.name, gpu.bus_id);
  const auto add = [&](Kind kind, std::string what, std::string remedy = {}) {
    findings.push_back({kind, fmt::format("{}: {}", name, what), std::move(remedy)});
  };
  if (gpu.fabric_state == kFabricNotStarted || gpu.fabric_state == kFabricInProgress) {
    add(Kind::fault,
        gpu.fabric_state == kFabricNotStarted ? "the fabric manager has not set up its NVSwitches"
                                              : "its NVSwitches are still being set up",
        "start nvidia-fabricmanager, of the driver's version (systemctl status nvidia-fabricmanager); in a virtual "
        "machine it runs on the host");
  }
  if (!gpu.nvlinks_unknown.empty()) {
    add(Kind::warning, "its NVLinks cannot be read: " + gpu.nvlinks_unknown,
        "see nvidia-smi nvlink -s and dmesg (Xid); until then no verdict on its pairs can be trusted");
  }
  if (gpu.active_nvlinks < gpu.nvlinks && gpu.active_nvlinks > 0) {
    add(should_have_more_links(gpu, gpus) ? Kind::fault : Kind::note,
        fmt::format("{} of {} NVLinks are active", gpu.active_nvlinks, gpu.nvlinks),
        "see nvidia-smi nvlink -s and dmesg (Xid 74); reset the GPU or reseat its bridge");
  } else if (gpu.active_nvlinks == 0 && gpu.nvlinks > 0) {
    add(Kind::warning, fmt::format("none of its {} NVLinks is active", gpu.nvlinks),
        "a PCIe card needs a bridge; elsewhere see nvidia-smi nvlink -s, and whether the driver has NVLink turned off");
  }
  if (gpu.mig) {
    add(Kind::warning, "it is divided (MIG): its parts have no peer access, and NCCL stages between them",
        "nvidia-smi -mig 0");
  }
  if (gpu.virtualization == 2) {
    add(Kind::warning, "it is a virtual GPU (vGPU): no peer-to-peer over PCIe, and few counters");
  }
  if (gpu.pcie_now.width > 0 && gpu.pcie_now.width < gpu.pcie_most.width) {
    add(Kind::warning, fmt::format("PCIe runs {} of {} lanes", gpu.pcie_now.width, gpu.pcie_most.width),
        "reseat the card, or move it to a slot with all lanes");
  }
  if (gpu.pcie_now.generation > 0 && gpu.pcie_now.generation < gpu.pcie_most.generation) {
    add(Kind::note, fmt::format("PCIe is at generation {} of {}, as in an idle GPU; look again under load",
                                gpu.pcie_now.generation, gpu.pcie_most.generation));
  }
  if (!gpu.processes.empty()) {
    add(Kind::note,
        fmt::format("in use by process {}: its bytes cannot be told from others", fmt::join(gpu.processes, ", ")));
  }
}

void look_at_pairs(const Topology& topology, Findings& findings) {
  std::vector<std::string> far;
  for (const GpuPair& pair : topology.pairs) {
    const std::string name = fmt::format("{}-{}", pair.a, pair.b);
    if (pair.nvlinks > 0 && pair.peer_access == false) {
      findings.push_back(
          {Kind::fault, fmt::format("GPUs {}: joined by NVLink, but no peer access: {}", name, pair.peer_obstacle),
           "NCCL stages between them; see the driver's registry keys, and that all GPUs are in one container"});
    }
    if (pair.path == GpuPath::staged && pair.peer_access == true) far.push_back(name);
  }
  const bool any_linked =
      std::any_of(topology.pairs.begin(), topology.pairs.end(), [](const GpuPair& pair) { return pair.nvlinks > 0; });
  if (const std::string unlinked = topology.unlinked_pairs(); any_linked && !unlinked.empty()) {
    findings.push_back({Kind::warning, "only some pairs have NVLink; without: " + unlinked,
                        "a ring through all of them runs at the pace of the slowest; choose GPUs that are joined "
                        "(CUDA_VISIBLE_DEVICES)"});
  }
  if (!far.empty()) {
    findings.push_back(
        {Kind::note,
         fmt::format("GPUs {}: peer access crosses a processor, so that NCCL stages by default", fmt::join(far, ", ")),
         "NCCL_P2P_LEVEL=SYS would try peer-to-peer, which is often slower"});
  }
}

void look_at_settings(const Topology& topology, Findings& findings) {
  for (const NcclSetting& setting : topology.nccl_settings) {
    const auto is = [&](std::string_view name, std::string_view value) {
      return setting.name == name && setting.value == value;
    };
    const char* effect = is("NCCL_P2P_DISABLE", "1")                                ? "no peer-to-peer, so no NVLink"
                         : is("NCCL_P2P_LEVEL", "LOC") || is("NCCL_P2P_LEVEL", "0") ? "no peer-to-peer, so no NVLink"
                         : is("NCCL_SHM_DISABLE", "1") ? "no staging through host memory: the network instead"
                                                       : nullptr;
    if (effect == nullptr) continue;
    findings.push_back({Kind::warning,
                        fmt::format("{}={} ({}): {}", setting.name, setting.value, setting.source, effect),
                        fmt::format("unset {} unless it is meant", setting.name)});
  }
}

void look_at_host(const Topology& topology, Findings& findings) {
  constexpr double kMib = 1024.0 * 1024.0;
  if (topology.shm_bytes < topology.shm_need_bytes) {
    findings.push_back({Kind::warning,
                        fmt::format("/dev/shm has {:.0f} MiB; NCCL may need {:.0f} MiB to stage between {} GPUs",
                                    static_cast<double>(topology.shm_bytes) / kMib,
                                    static_cast<double>(topology.shm_need_bytes) / kMib, topology.gpus.size()),
                        "docker run --shm-size=1g, or mount -o remount,size=1g /dev/shm"});
  }
  if (!topology.container.empty() && topology.gpus.size() == 1) {
    findings.push_back({Kind::note, "one GPU in a container: between containers there is no peer access", ""});
  }
  if (!topology.virtual_machine.empty() && !topology.gpus.empty()) {
    findings.push_back(
        {Kind::note, "a virtual machine may hide PCIe switches and NVLink's far ends: trust counters", ""});
  }
}

}  // namespace

std::vector<TopologyFinding> topology_findings(const Topology& topology, bool driver_loaded) {
  Findings findings;
  if (topology.gpus.empty()) {
    findings.push_back({driver_loaded ? Kind::fault : Kind::note, "no GPU: " + topology.why_no_gpus,
                        driver_loaded
                            ? "the driver is loaded, so its library is missing or does not fit: in a container, "
                              "ask for the capability utility"
                            : "everything but the links can be used with CPU ranks"});
  }
  for (const MissingGpu& gpu : topology.missing_gpus) {
    findings.push_back({gpu.kept_away ? Kind::note : Kind::fault,
                        fmt::format("GPU {} of the driver is not given to this process: {}", gpu.index, gpu.why),
                        gpu.kept_away ? "" : "see dmesg (Xid) and nvidia-smi; reset the GPU, or start the host anew"});
  }
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) look_at_gpu(topology.gpus, i, findings);
  look_at_pairs(topology, findings);
  look_at_settings(topology, findings);
  look_at_host(topology, findings);
  std::stable_sort(findings.begin(), findings.end(),
                   [](const TopologyFinding& a, const TopologyFinding& b) { return a.kind < b.kind; });
  return findings;
}

}  // namespace lockstep
