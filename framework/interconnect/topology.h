// What joins the GPUs of this host, what is wrong with it, and what to do.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "framework/distributed/nccl_settings.h"
#include "framework/interconnect/nvml.h"

namespace lockstep {

struct PcieLink {
  int generation = 0;  // 0: not known
  int width = 0;

  // In each direction, before protocol: 63 for 5 x16. 0 where not known.
  double peak_gb_s() const;
};

struct GpuNode {
  std::string name;
  std::string uuid;
  std::string bus_id;
  int compute_capability = 0;   // 90 is 9.0; 0: not known
  int nvlinks = 0;              // active or not
  std::string nvlinks_unknown;  // why the driver does not tell of them, empty where it does
  int active_nvlinks = 0;
  int cpu_nvlinks = 0;        // of the active ones, those that end at a processor
  int nvlink_generation = 0;  // 0: has none
  double nvlink_gb_s = 0.0;   // of one link, in each direction
  bool nvswitch = false;      // its links end at switches
  PcieLink pcie_now, pcie_most;
  int numa_node = -1;  // -1: the host tells of none
  bool mig = false;
  int fabric_state = 0;    // of the NVSwitches: 0 none, 1 not started, 2 in progress, 3 completed
  int virtualization = 0;  // 1 passed through to a virtual machine, 2 vGPU
  std::vector<unsigned> processes;
};

enum class GpuPath : std::uint8_t {
  nvlink,    // direct
  nvswitch,  // NVLink through switches
  pcie_p2p,  // peer-to-peer over PCIe
  staged,    // through host memory
};
const char* gpu_path_name(GpuPath path);

struct GpuPair {
  int a = 0, b = 0;  // places in Topology::gpus
  GpuPath path = GpuPath::staged;
  int nvlinks = 0;  // active between the two, or from each to the switches
  int most_nvlinks = 0;
  std::optional<PciePath> pcie_path;
  std::optional<bool> peer_access;  // empty: the driver does not say
  std::string peer_obstacle;        // why there is none, or why it does not say
  double peak_gb_s = 0.0;           // in each direction, as specified; 0: not known
  double expected_gb_s = 0.0;       // that a good copy reaches
};

struct TopologyFinding {
  enum class Kind : std::uint8_t { fault, warning, note };
  Kind kind = Kind::note;
  std::string what;
  std::string remedy;  // empty where nothing is to be done
};

struct Topology {
  std::string why_no_gpus;  // empty where there are some
  std::string driver;
  int cuda_version = 0;  // 13000 is 13.0
  std::vector<GpuNode> gpus;
  std::vector<MissingGpu> missing_gpus;
  std::vector<GpuPair> pairs;        // every two, a < b
  std::uint64_t shm_bytes = 0;       // size of /dev/shm
  std::uint64_t shm_need_bytes = 0;  // of NCCL where it stages through host memory
  std::string container;             // how this is seen to be one, or empty
  std::string virtual_machine;
  std::vector<NcclSetting> nccl_settings;
  std::vector<std::filesystem::path> nccl_files;  // that are there
  std::vector<TopologyFinding> findings;

  bool has_fault() const;
  // "0-2, 1-2": the pairs that NVLink does not join.
  std::string unlinked_pairs() const;
  // In one direction, of the slowest among the GPUs with these UUIDs: the NVLinks between any two of them, and the PCIe
  // links of each. 0 where that is not known, or not there.
  double nvlink_peak_gb_s(const std::vector<std::string>& uuids) const;
  double pcie_peak_gb_s(const std::vector<std::string>& uuids) const;
};

// Where it is read from: other roots than those of this host are for tests.
struct TopologySources {
  NvmlAnswer<std::shared_ptr<const Nvml>> nvml;
  NcclSettings nccl;
  std::filesystem::path root = "/";
  static TopologySources of_host();
};

Topology read_topology(const TopologySources& sources = TopologySources::of_host());

}  // namespace lockstep
