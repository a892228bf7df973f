#include "framework/interconnect/topology.h"

#include <fmt/core.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

#include "framework/interconnect/topology_findings.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Shares of the specified rate that a good copy reaches: docs/interconnect.md has the measurements.
constexpr double kNvlinkReached = 0.88;
constexpr double kStagedReached = 0.6;

// Of one NVLink in each direction, as specified, by the compute capability of the GPU.
struct NvlinkKind {
  int compute_capability;
  int generation;
  double gb_s;
};
constexpr std::array kNvlinkKinds{NvlinkKind{60, 1, 20},  NvlinkKind{70, 2, 25},      NvlinkKind{75, 2, 25},
                                  NvlinkKind{80, 3, 25},  NvlinkKind{86, 3, 14.0625}, NvlinkKind{90, 4, 25},
                                  NvlinkKind{100, 5, 50}, NvlinkKind{103, 5, 50}};

std::string read_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

bool mentions(const fs::path& file, const std::vector<std::string>& words) {
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return text.str().find(word) != std::string::npos; });
}

int numa_node_of(const fs::path& root, const std::string& bus_id) {
  std::ifstream stream(root / "sys/bus/pci/devices" / bus_id / "numa_node");
  int node = -1;
  return stream >> node ? node : -1;
}

void read_nvlinks(const Nvml& nvml, int gpu, GpuNode& node) {
  const auto links = nvml.nvlinks(gpu);
  node.nvlinks_unknown = links.why_not;
  if (!links || links->empty()) return;
  node.nvlinks = static_cast<int>(links->size());
  for (const NvlinkState& link : *links) {
    const NvlinkPeer peer = nvml.nvlink_peer(gpu, link.link).value_or(NvlinkPeer::unknown);
    node.nvswitch = node.nvswitch || peer == NvlinkPeer::nvswitch;
    if (!link.active) continue;
    ++node.active_nvlinks;
    if (peer == NvlinkPeer::cpu) ++node.cpu_nvlinks;
  }
  const auto kind = std::find_if(kNvlinkKinds.begin(), kNvlinkKinds.end(), [&](const NvlinkKind& known) {
    return known.compute_capability == node.compute_capability;
  });
  if (kind != kNvlinkKinds.end()) {
    node.nvlink_generation = kind->generation;
    node.nvlink_gb_s = kind->gb_s;
    return;
  }
  constexpr double kPayload = 16.0 / 17.0;  // 53.125 on the line are 50
  const auto speed = nvml.read(gpu, {kNvlinkSpeedMbps, 0});
  if (speed) node.nvlink_gb_s = static_cast<double>(*speed) / 1e3 * kPayload;
}

GpuNode read_gpu(const Nvml& nvml, int gpu, const fs::path& root) {
  GpuNode node;
  node.name = nvml.name(gpu).value_or("GPU of an unknown name");
  node.uuid = nvml.uuid(gpu).value_or("");
  node.bus_id = nvml.pci_bus_id(gpu).value_or("");
  node.compute_capability = nvml.compute_capability(gpu).value_or(0);
  node.pcie_now = {nvml.pcie_generation(gpu).value_or(0), nvml.pcie_width(gpu).value_or(0)};
  node.pcie_most = {nvml.max_pcie_generation(gpu).value_or(0), nvml.max_pcie_width(gpu).value_or(0)};
  node.numa_node = numa_node_of(root, node.bus_id);
  node.mig = nvml.mig_enabled(gpu).value_or(false);
  node.fabric_state = nvml.fabric_state(gpu).value_or(0);
  node.virtualization = nvml.virtualization(gpu).value_or(0);
  node.processes = nvml.compute_processes(gpu).value_or({});
  read_nvlinks(nvml, gpu, node);
  return node;
}

// Active links of GPU `a` that end at GPU `b`, and those that may reach it through switches.
struct Links {
  int direct = 0;
  int switched = 0;
};
Links links_between(const Nvml& nvml, int a, const std::string& b_bus_id, const std::vector<GpuNode>& gpus) {
  Links links;
  for (const NvlinkState& link : nvml.nvlinks(a).value_or({})) {
    if (!link.active) continue;
    const NvlinkPeer peer = nvml.nvlink_peer(a, link.link).value_or(NvlinkPeer::unknown);
    const std::string bus_id = nvml.nvlink_peer_bus_id(a, link.link).value_or("");
    const bool is_gpu = std::any_of(gpus.begin(), gpus.end(), [&](const GpuNode& gpu) { return gpu.bus_id == bus_id; });
    if (bus_id == b_bus_id) ++links.direct;
    // A virtual machine hides the far end: it is taken for a switch, as NCCL does.
    if (peer == NvlinkPeer::nvswitch || (peer == NvlinkPeer::unknown && !is_gpu)) ++links.switched;
  }
  return links;
}

double pcie_reached(const PcieLink& link) {
  return link.peak_gb_s() * (link.generation <= 3 ? 0.79 : link.generation == 4 ? 0.85 : 0.88);
}

GpuPair read_pair(const Nvml& nvml, int a, int b, const std::vector<GpuNode>& gpus) {
  const GpuNode& first = gpus[static_cast<std::size_t>(a)];
  const GpuNode& second = gpus[static_cast<std::size_t>(b)];
  GpuPair pair{.a = a, .b = b};
  const Links forth = links_between(nvml, a, second.bus_id, gpus);
  const Links back = links_between(nvml, b, first.bus_id, gpus);
  if (const auto path = nvml.pcie_path(a, b)) pair.pcie_path = *path;
  const auto obstacle = nvml.p2p_obstacle(a, b, P2pUse::read);
  if (obstacle) pair.peer_access = obstacle->empty();
  pair.peer_obstacle = obstacle ? *obstacle : obstacle.why_not;
  const bool nvlink_works = nvml.p2p_obstacle(a, b, P2pUse::nvlink).value_or("").empty();

  const PcieLink& slower =
      first.pcie_most.peak_gb_s() <= second.pcie_most.peak_gb_s() ? first.pcie_most : second.pcie_most;
  if (forth.direct > 0 || (nvlink_works && forth.switched > 0 && back.switched > 0)) {
    pair.path = forth.direct > 0 ? GpuPath::nvlink : GpuPath::nvswitch;
    pair.nvlinks = forth.direct > 0 ? forth.direct : std::min(forth.switched, back.switched);
    // Nobody tells where an inactive link would end: to the switches it is one of theirs, else it counts for no pair.
    pair.most_nvlinks = forth.direct > 0 ? forth.direct : std::min(first.nvlinks, second.nvlinks);
    pair.peak_gb_s = pair.nvlinks * std::min(first.nvlink_gb_s, second.nvlink_gb_s);
    pair.expected_gb_s = kNvlinkReached * pair.peak_gb_s;
  } else if (pair.peer_access.value_or(false) && pair.pcie_path && *pair.pcie_path <= PciePath::switches) {
    pair.path = GpuPath::pcie_p2p;
    pair.peak_gb_s = slower.peak_gb_s();
    pair.expected_gb_s = pcie_reached(slower);
  } else {
    pair.peak_gb_s = slower.peak_gb_s();
    pair.expected_gb_s = kStagedReached * pair.peak_gb_s;
  }
  return pair;
}

// NCCL's buffers of one connection and channel: 4 MiB (Simple), 4.7 MiB (LL128) and 0.5 MiB (LL); a ring of staged GPUs
// has some channels, each with a connection a GPU.
std::uint64_t shm_need(const std::vector<GpuNode>& gpus) {
  constexpr std::uint64_t kConnection = 9'634'816;
  constexpr std::uint64_t kChannels = 8;
  return gpus.size() < 2 ? 0 : gpus.size() * kChannels * kConnection;
}

std::string container_sign(const fs::path& root) {
  std::error_code ignored;
  for (const char* sign : {".dockerenv", "run/.containerenv"}) {
    if (fs::exists(root / sign, ignored)) return fmt::format("/{} is there", sign);
  }
  if (mentions(root / "proc/1/cgroup", {"docker", "kubepods", "containerd", "lxc"}))
    return "the control group of process 1";
  return {};
}

std::string virtual_machine_sign(const fs::path& root) {
  if (!mentions(root / "proc/cpuinfo", {" hypervisor"})) return {};
  const std::string product = read_line(root / "sys/class/dmi/id/product_name");
  return product.empty() ? "the processor reports a hypervisor" : product;
}

}  // namespace

double PcieLink::peak_gb_s() const {
  constexpr std::array kLane{0.0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
  constexpr int kMostLanes = 32;
  return generation > 0 && generation < static_cast<int>(kLane.size()) && width > 0 && width <= kMostLanes
             ? kLane[static_cast<std::size_t>(generation)] * width
             : 0.0;
}

const char* gpu_path_name(GpuPath path) {
  switch (path) {
    case GpuPath::nvlink:
      return "NVLink";
    case GpuPath::nvswitch:
      return "NVLink through NVSwitch";
    case GpuPath::pcie_p2p:
      return "PCIe peer-to-peer";
    case GpuPath::staged:
      return "staged through host memory";
  }
  return "";
}

bool Topology::has_fault() const {
  return std::any_of(findings.begin(), findings.end(),
                     [](const TopologyFinding& finding) { return finding.kind == TopologyFinding::Kind::fault; });
}

std::string Topology::unlinked_pairs() const {
  std::string names;
  for (const GpuPair& pair : pairs) {
    if (pair.nvlinks == 0) names += fmt::format("{}{}-{}", names.empty() ? "" : ", ", pair.a, pair.b);
  }
  return names;
}

double Topology::nvlink_peak_gb_s(const std::vector<std::string>& uuids) const {
  const auto used = [&](int gpu) {
    return std::find(uuids.begin(), uuids.end(), gpus[static_cast<std::size_t>(gpu)].uuid) != uuids.end();
  };
  double peak = std::numeric_limits<double>::infinity();
  for (const GpuPair& pair : pairs) {
    if (used(pair.a) && used(pair.b)) peak = std::min(peak, pair.nvlinks > 0 ? pair.peak_gb_s : 0.0);
  }
  return std::isinf(peak) ? 0.0 : peak;
}

double Topology::pcie_peak_gb_s(const std::vector<std::string>& uuids) const {
  double peak = uuids.empty() ? 0.0 : std::numeric_limits<double>::infinity();
  for (const std::string& uuid : uuids) {
    const auto gpu = std::find_if(gpus.begin(), gpus.end(), [&](const GpuNode& node) { return node.uuid == uuid; });
    peak = std::min(peak, gpu == gpus.end() ? 0.0 : gpu->pcie_most.peak_gb_s());
  }
  return peak;
}

TopologySources TopologySources::of_host() { return {.nvml = Nvml::open(), .nccl = NcclSettings::of_process()}; }

Topology read_topology(const TopologySources& sources) {
  Topology topology;
  topology.nccl_settings = sources.nccl.all();
  topology.nccl_files = sources.nccl.files();
  topology.container = container_sign(sources.root);
  topology.virtual_machine = virtual_machine_sign(sources.root);
  struct statvfs shm {};
  if (::statvfs((sources.root / "dev/shm").c_str(), &shm) == 0) topology.shm_bytes = shm.f_blocks * shm.f_frsize;
  if (sources.nvml) {
    const Nvml& nvml = **sources.nvml;
    topology.driver = nvml.driver_version().value_or("");
    topology.cuda_version = nvml.cuda_version().value_or(0);
    topology.missing_gpus = nvml.missing_gpus();
    for (int i = 0; i < nvml.gpu_count(); ++i) topology.gpus.push_back(read_gpu(nvml, i, sources.root));
    for (int a = 0; a < nvml.gpu_count(); ++a) {
      for (int b = a + 1; b < nvml.gpu_count(); ++b) topology.pairs.push_back(read_pair(nvml, a, b, topology.gpus));
    }
    if (topology.gpus.empty()) topology.why_no_gpus = "the driver shows no GPU";
  } else {
    topology.why_no_gpus = sources.nvml.why_not;
  }
  topology.shm_need_bytes = shm_need(topology.gpus);
  std::error_code ignored;
  const bool driver_expected = fs::exists(sources.root / "proc/driver/nvidia/version", ignored);
  topology.findings = topology_findings(topology, driver_expected);
  return topology;
}

}  // namespace lockstep
