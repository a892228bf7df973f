// The driver's management library, opened at run time: what it says of the GPUs of this host. Works in a build without
// CUDA. Its index of a GPU is not CUDA's: match by UUID or PCI bus id.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// What a query gave, or why nothing: "not supported" and "not permitted" are no zero.
template <class T>
struct NvmlAnswer {
  std::optional<T> value;
  std::string why_not;

  explicit operator bool() const { return value.has_value(); }
  const T& operator*() const { return *value; }
  const T* operator->() const { return &*value; }
  T value_or(T other) const { return value.value_or(std::move(other)); }
  // function(value), where there is one.
  template <class Function>
  auto then(Function function) const -> NvmlAnswer<decltype(function(*value))> {
    if (value) return {function(*value), {}};
    return {std::nullopt, why_not};
  }
};

// NVML_FI_DEV_*: counters and figures that are read many at a time.
struct NvmlField {
  unsigned id = 0;
  unsigned scope = 0;  // a link; kAllLinks
};
inline constexpr unsigned kAllLinks = ~0U;
inline constexpr NvmlField kNvlinkSentKib{138, kAllLinks}, kNvlinkReceivedKib{139, kAllLinks};  // payload
inline constexpr NvmlField kPcieSentBytes{197}, kPcieReceivedBytes{198};  // they wrap at 32 bits; driver 555 or later
inline constexpr unsigned kNvlinkSentBytesOfLink = 202, kNvlinkReceivedBytesOfLink = 204;  // by link; NVLink 5

inline constexpr unsigned kNvlinkSpeedMbps = 164;  // by link; with the bits of the line coding

inline constexpr int kMostNvlinks = 18;

// How two GPUs reach each other over PCIe, with NVML's numbers.
enum class PciePath : std::uint8_t {
  same_board = 0,
  one_switch = 10,   // PIX
  switches = 20,     // PXB
  host_bridge = 30,  // PHB
  numa_node = 40,    // NODE: several host bridges
  system = 50,       // SYS: between processors
};

enum class P2pUse : std::uint8_t { read = 0, write = 1, nvlink = 2, pcie = 4 };

// What the far end of an NVLink is.
enum class NvlinkPeer : std::uint8_t { gpu = 0, cpu = 1, nvswitch = 2, unknown = 255 };

// One that the driver counts and does not give.
struct MissingGpu {
  unsigned index = 0;      // the driver's
  bool kept_away = false;  // from this process: it has no permission
  std::string why;
};

struct NvlinkState {
  int link = 0;
  bool active = false;
};

class Nvml {
 public:
  // The library named by LOCKSTEP_NVML, else libnvidia-ml.so.1. Why not: no library, or the driver does not answer.
  static NvmlAnswer<std::shared_ptr<const Nvml>> open();
  static NvmlAnswer<std::shared_ptr<const Nvml>> open(const std::string& library);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Any thread may ask. `gpu` counts from 0 to gpu_count() - 1.
  int gpu_count() const;
  const std::vector<MissingGpu>& missing_gpus() const;
  NvmlAnswer<std::string> driver_version() const;
  NvmlAnswer<int> cuda_version() const;  // the newest that the driver runs: 13000 is 13.0

  NvmlAnswer<std::string> name(int gpu) const;
  NvmlAnswer<std::string> uuid(int gpu) const;        // "GPU-..."
  NvmlAnswer<std::string> pci_bus_id(int gpu) const;  // "0000:19:00.0", as in /sys/bus/pci/devices
  NvmlAnswer<int> compute_capability(int gpu) const;  // 90 is 9.0
  NvmlAnswer<bool> mig_enabled(int gpu) const;
  NvmlAnswer<int> pcie_generation(int gpu) const;  // now: an idle GPU may have turned it down
  NvmlAnswer<int> pcie_width(int gpu) const;
  NvmlAnswer<int> max_pcie_generation(int gpu) const;
  NvmlAnswer<int> max_pcie_width(int gpu) const;
  NvmlAnswer<int> virtualization(int gpu) const;  // 0 none, 1 passed through to a virtual machine, 2 vGPU
  NvmlAnswer<int> fabric_state(int gpu) const;    // 0 not supported, 1 not started, 2 in progress, 3 completed
  NvmlAnswer<std::vector<unsigned>> compute_processes(int gpu) const;  // process ids, as the driver's host counts them

  NvmlAnswer<std::vector<NvlinkState>> nvlinks(int gpu) const;  // those that are there
  NvmlAnswer<NvlinkPeer> nvlink_peer(int gpu, int link) const;
  NvmlAnswer<std::string> nvlink_peer_bus_id(int gpu, int link) const;

  NvmlAnswer<PciePath> pcie_path(int a, int b) const;
  // Empty where the use is possible, else the driver's reason ("disabled by a registry key").
  NvmlAnswer<std::string> p2p_obstacle(int a, int b, P2pUse use) const;

  std::vector<NvmlAnswer<std::uint64_t>> read(int gpu, std::span<const NvmlField> fields) const;
  NvmlAnswer<std::uint64_t> read(int gpu, NvmlField field) const;

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);

  std::unique_ptr<Library> library_;
};

// "00000000:19:00.0" and "0000:19:00.0" are one: lower case, a domain of four digits.
std::string canonical_bus_id(const std::string& bus_id);

}  // namespace lockstep
