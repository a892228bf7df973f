#include "framework/interconnect/nvml.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <cstring>

namespace lockstep {
namespace {

// The types of nvml.h that are used, as their documentation (API version 12) lays them out.
using Device = struct nvmlDevice_st*;

struct FieldValue {
  unsigned field_id;
  unsigned scope_id;
  long long timestamp;
  long long latency_us;
  int value_type;
  int status;
  union {
    double as_double;
    int as_int;
    unsigned as_unsigned;
    unsigned long as_unsigned_long;
    unsigned long long as_unsigned_long_long;
    long long as_long_long;
    unsigned short as_unsigned_short;
  } value;
};

struct PciInfo {
  std::array<char, 16> legacy_bus_id;
  unsigned domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> bus_id;
};

struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

struct FabricInfo {
  std::array<unsigned char, 16> cluster;
  int status;
  unsigned clique;
  unsigned char state;
};

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kNoPermission = 4;
constexpr int kInsufficientSize = 7;
constexpr int kFunctionNotFound = 13;

std::string text_of(int status) {
  switch (status) {
    case kInvalidArgument:
      return "not there";
    case kNotSupported:
      return "not supported";
    case kNoPermission:
      return "not permitted";
    case 6:
      return "not found";
    case 9:
      return "the driver is not loaded";
    case kFunctionNotFound:
      return "this driver cannot tell";
    case 15:
      return "the GPU is lost";
    case 18:
      return "driver and library are of different versions";
    default:
      return fmt::format("NVML error {}", status);
  }
}

template <class T>
NvmlAnswer<T> no_answer(int status) {
  return {std::nullopt, text_of(status)};
}

std::string p2p_text(int status) {
  constexpr std::array kTexts{"",
                              "not supported by the chipset",
                              "not supported by the GPU",
                              "not supported between these I/O hubs",
                              "disabled by a registry key of the driver",
                              "not supported"};
  const auto i = static_cast<std::size_t>(status);
  return i < kTexts.size() ? kTexts[i] : "unknown to the driver";
}

std::string bus_id_of(const PciInfo& info) {
  return canonical_bus_id({info.bus_id.data(), ::strnlen(info.bus_id.data(), info.bus_id.size())});
}

// nvmlValueType_t
enum ValueType : unsigned { kUnsigned = 1, kUnsignedLong, kUnsignedLongLong, kLongLong, kInt, kUnsignedShort };

NvmlAnswer<std::uint64_t> value_of(const FieldValue& field) {
  if (field.status != kSuccess) return no_answer<std::uint64_t>(field.status);
  switch (field.value_type) {
    case kUnsigned:
      return {field.value.as_unsigned, {}};
    case kUnsignedLong:
      return {field.value.as_unsigned_long, {}};
    case kUnsignedLongLong:
      return {field.value.as_unsigned_long_long, {}};
    case kLongLong:
      if (field.value.as_long_long >= 0) return {static_cast<std::uint64_t>(field.value.as_long_long), {}};
      break;
    case kInt:
      if (field.value.as_int >= 0) return {static_cast<std::uint64_t>(field.value.as_int), {}};
      break;
    case kUnsignedShort:
      return {field.value.as_unsigned_short, {}};
    default:
      break;
  }
  return {std::nullopt, fmt::format("no count (type {})", field.value_type)};
}

}  // namespace

std::string canonical_bus_id(const std::string& bus_id) {
  std::string id = bus_id;
  std::transform(id.begin(), id.end(), id.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::size_t domain = id.find(':');
  if (domain != std::string::npos && domain > 4) {
    const std::string surplus = id.substr(0, domain - 4);
    if (surplus.find_first_not_of('0') == std::string::npos) id.erase(0, domain - 4);
  }
  return id;
}

struct Nvml::Library {
  explicit Library(void* opened) : handle(opened) {}
  ~Library() {
    if (initialised) call("nvmlShutdown");
    ::dlclose(handle);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // The status of the call; functions that this library lacks are "not found".
  template <class... Args>
  int call(const char* function, Args... args) const {
    auto* const address = reinterpret_cast<int (*)(Args...)>(::dlsym(handle, function));
    return address != nullptr ? address(args...) : kFunctionNotFound;
  }

  // Of a function (device, further arguments..., result*).
  template <class T, class... Args>
  NvmlAnswer<T> ask(const char* function, int gpu, Args... args) const {
    T result{};
    const int status = call(function, device(gpu), args..., &result);
    return status == kSuccess ? NvmlAnswer<T>{result, {}} : no_answer<T>(status);
  }

  NvmlAnswer<int> ask_number(const char* function, int gpu) const {
    return ask<unsigned>(function, gpu).then([](unsigned number) { return static_cast<int>(number); });
  }

  NvmlAnswer<std::string> ask_text(const char* function, int gpu) const {
    std::array<char, 97> text{};
    const int status = call(function, device(gpu), text.data(), static_cast<unsigned>(text.size() - 1));
    return status == kSuccess ? NvmlAnswer<std::string>{text.data(), {}} : no_answer<std::string>(status);
  }

  Device device(int gpu) const { return devices[static_cast<std::size_t>(gpu)]; }

  void* handle;
  bool initialised = false;
  std::vector<Device> devices;
  std::vector<MissingGpu> missing;
};

NvmlAnswer<std::shared_ptr<const Nvml>> Nvml::open() {
  const char* chosen = std::getenv("LOCKSTEP_NVML");
  return open(chosen != nullptr && *chosen != '\0' ? chosen : "libnvidia-ml.so.1");
}

NvmlAnswer<std::shared_ptr<const Nvml>> Nvml::open(const std::string& name) {
  void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {std::nullopt, fmt::format("no NVIDIA driver here ({} cannot be opened)", name)};
  auto library = std::make_unique<Library>(handle);
  const auto failed = [&](int status) {
    return NvmlAnswer<std::shared_ptr<const Nvml>>{std::nullopt, fmt::format("{}: {}", name, text_of(status))};
  };
  if (const int status = library->call("nvmlInit_v2"); status != kSuccess) return failed(status);
  library->initialised = true;
  unsigned count = 0;
  if (const int status = library->call("nvmlDeviceGetCount_v2", &count); status != kSuccess) return failed(status);
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    const int status = library->call("nvmlDeviceGetHandleByIndex_v2", i, &device);
    if (status == kSuccess) {
      library->devices.push_back(device);
    } else {
      library->missing.push_back({i, status == kNoPermission, text_of(status)});
    }
  }
  return {std::shared_ptr<const Nvml>(new Nvml(std::move(library))), {}};
}

Nvml::Nvml(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Nvml::~Nvml() = default;

int Nvml::gpu_count() const { return static_cast<int>(library_->devices.size()); }
const std::vector<MissingGpu>& Nvml::missing_gpus() const { return library_->missing; }

NvmlAnswer<std::string> Nvml::driver_version() const {
  std::array<char, 81> text{};
  const int status = library_->call("nvmlSystemGetDriverVersion", text.data(), static_cast<unsigned>(text.size() - 1));
  return status == kSuccess ? NvmlAnswer<std::string>{text.data(), {}} : no_answer<std::string>(status);
}

NvmlAnswer<int> Nvml::cuda_version() const {
  int version = 0;
  const int status = library_->call("nvmlSystemGetCudaDriverVersion_v2", &version);
  return status == kSuccess ? NvmlAnswer<int>{version, {}} : no_answer<int>(status);
}

NvmlAnswer<std::string> Nvml::name(int gpu) const { return library_->ask_text("nvmlDeviceGetName", gpu); }
NvmlAnswer<std::string> Nvml::uuid(int gpu) const { return library_->ask_text("nvmlDeviceGetUUID", gpu); }

NvmlAnswer<std::string> Nvml::pci_bus_id(int gpu) const {
  return library_->ask<PciInfo>("nvmlDeviceGetPciInfo_v3", gpu).then(bus_id_of);
}

NvmlAnswer<int> Nvml::compute_capability(int gpu) const {
  int major = 0;
  int minor = 0;
  const int status = library_->call("nvmlDeviceGetCudaComputeCapability", library_->device(gpu), &major, &minor);
  return status == kSuccess ? NvmlAnswer<int>{10 * major + minor, {}} : no_answer<int>(status);
}

NvmlAnswer<bool> Nvml::mig_enabled(int gpu) const {
  unsigned now = 0;
  unsigned pending = 0;
  const int status = library_->call("nvmlDeviceGetMigMode", library_->device(gpu), &now, &pending);
  return status == kSuccess ? NvmlAnswer<bool>{now != 0, {}} : no_answer<bool>(status);
}

NvmlAnswer<int> Nvml::pcie_generation(int gpu) const {
  return library_->ask_number("nvmlDeviceGetCurrPcieLinkGeneration", gpu);
}
NvmlAnswer<int> Nvml::pcie_width(int gpu) const { return library_->ask_number("nvmlDeviceGetCurrPcieLinkWidth", gpu); }
NvmlAnswer<int> Nvml::max_pcie_generation(int gpu) const {
  return library_->ask_number("nvmlDeviceGetMaxPcieLinkGeneration", gpu);
}
NvmlAnswer<int> Nvml::max_pcie_width(int gpu) const {
  return library_->ask_number("nvmlDeviceGetMaxPcieLinkWidth", gpu);
}

NvmlAnswer<int> Nvml::virtualization(int gpu) const {
  return library_->ask_number("nvmlDeviceGetVirtualizationMode", gpu);
}

NvmlAnswer<int> Nvml::fabric_state(int gpu) const {
  return library_->ask<FabricInfo>("nvmlDeviceGetGpuFabricInfo", gpu).then([](const FabricInfo& info) {
    return static_cast<int>(info.state);
  });
}

NvmlAnswer<std::vector<unsigned>> Nvml::compute_processes(int gpu) const {
  std::vector<ProcessInfo> infos(64);
  int status = kInsufficientSize;
  // Processes may start between two calls.
  for (int attempt = 0; attempt < 8 && status == kInsufficientSize; ++attempt) {
    auto count = static_cast<unsigned>(infos.size());
    status = library_->call("nvmlDeviceGetComputeRunningProcesses_v3", library_->device(gpu), &count, infos.data());
    infos.resize(status == kInsufficientSize ? 2 * infos.size() : std::min<std::size_t>(count, infos.size()));
  }
  if (status != kSuccess) return no_answer<std::vector<unsigned>>(status);
  std::vector<unsigned> pids;
  for (const ProcessInfo& info : infos) pids.push_back(info.pid);
  return {pids, {}};
}

NvmlAnswer<std::vector<NvlinkState>> Nvml::nvlinks(int gpu) const {
  std::vector<NvlinkState> links;
  // By state: the capabilities of a link are answered also where there is no link.
  for (int link = 0; link < kMostNvlinks; ++link) {
    int state = 0;
    const int status =
        library_->call("nvmlDeviceGetNvLinkState", library_->device(gpu), static_cast<unsigned>(link), &state);
    if (status == kInvalidArgument || status == kNotSupported) continue;
    if (status != kSuccess) return no_answer<std::vector<NvlinkState>>(status);
    links.push_back({link, state == 1});
  }
  return {links, {}};
}

NvmlAnswer<NvlinkPeer> Nvml::nvlink_peer(int gpu, int link) const {
  const auto type = library_->ask<int>("nvmlDeviceGetNvLinkRemoteDeviceType", gpu, static_cast<unsigned>(link));
  return type.then(
      [](int number) { return number >= 0 && number <= 2 ? static_cast<NvlinkPeer>(number) : NvlinkPeer::unknown; });
}

NvmlAnswer<std::string> Nvml::nvlink_peer_bus_id(int gpu, int link) const {
  return library_->ask<PciInfo>("nvmlDeviceGetNvLinkRemotePciInfo_v2", gpu, static_cast<unsigned>(link))
      .then(bus_id_of);
}

NvmlAnswer<PciePath> Nvml::pcie_path(int a, int b) const {
  const auto level = library_->ask<int>("nvmlDeviceGetTopologyCommonAncestor", a, library_->device(b));
  if (!level) return {std::nullopt, level.why_not};
  if (*level < 0 || *level > 50 || *level % 10 != 0) return {std::nullopt, fmt::format("unknown level {}", *level)};
  return {static_cast<PciePath>(*level), {}};
}

NvmlAnswer<std::string> Nvml::p2p_obstacle(int a, int b, P2pUse use) const {
  return library_->ask<int>("nvmlDeviceGetP2PStatus", a, library_->device(b), static_cast<int>(use)).then(p2p_text);
}

std::vector<NvmlAnswer<std::uint64_t>> Nvml::read(int gpu, std::span<const NvmlField> fields) const {
  std::vector<FieldValue> values(fields.size());
  for (std::size_t i = 0; i < fields.size(); ++i) {
    values[i].field_id = fields[i].id;
    values[i].scope_id = fields[i].scope;
    values[i].status = kFunctionNotFound;  // for libraries that skip a field they do not know
  }
  const int status =
      library_->call("nvmlDeviceGetFieldValues", library_->device(gpu), static_cast<int>(values.size()), values.data());
  std::vector<NvmlAnswer<std::uint64_t>> answers;
  for (const FieldValue& value : values) {
    answers.push_back(status == kSuccess ? value_of(value) : no_answer<std::uint64_t>(status));
  }
  return answers;
}

NvmlAnswer<std::uint64_t> Nvml::read(int gpu, NvmlField field) const { return read(gpu, std::span(&field, 1)).front(); }

}  // namespace lockstep
