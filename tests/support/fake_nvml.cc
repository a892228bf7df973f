// A stand-in for libnvidia-ml.so: answers from a script, the JSON file that FAKE_NVML names (fake_nvml.h writes it), in
// the layout of structures that the real library documents. LOCKSTEP_NVML makes Lockstep open it.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kInsufficientSize = 7;
constexpr int kUnknown = 999;

struct Machine {
  json script;
  Clock::time_point since = Clock::now();
  std::map<std::string, std::size_t> reads;  // of each counter, how often
  std::mutex mutex;
};
Machine machine;

const json& gpu_of(void* device) { return machine.script["gpus"][reinterpret_cast<std::uintptr_t>(device) - 1]; }

// The status that the script has for a function on this GPU.
int refused(void* device, const char* function) {
  const json& gpu = gpu_of(device);
  return gpu.contains("refuse") ? gpu["refuse"].value(function, kSuccess) : kSuccess;
}

int give_text(const json& text, char* place, unsigned length) {
  if (!text.is_string()) return kNotSupported;
  const std::string value = text;
  if (value.size() + 1 > length) return kInsufficientSize;
  std::memcpy(place, value.c_str(), value.size() + 1);
  return kSuccess;
}

template <class T>
int give_number(const json& number, T* place) {
  if (!number.is_number()) return kNotSupported;
  *place = number;
  return kSuccess;
}

// A counter: {"values": [..]} one a reading, the last for ever; {"rate": a second, "start": ..}; {"file": ..} whose
// text is a number. "wrap_bits" cuts it off, "error" is a status, "type" that of the value (3: unsigned long long).
int read_counter(const json& counter, const std::string& key, unsigned long long& value) {
  if (counter.contains("error")) return counter["error"];
  if (counter.contains("values")) {
    const json& values = counter["values"];
    value = values[std::min(machine.reads[key]++, values.size() - 1)];
  } else if (counter.contains("file")) {
    std::ifstream stream(counter["file"].get<std::string>());
    if (!(stream >> value)) value = 0;
  } else {
    const double seconds = std::chrono::duration<double>(Clock::now() - machine.since).count();
    value = counter.value("start", 0ULL) + static_cast<unsigned long long>(counter.value("rate", 0.0) * seconds);
  }
  if (counter.contains("wrap_bits")) value &= (1ULL << counter["wrap_bits"].get<int>()) - 1;
  return kSuccess;
}

struct FieldValue {
  unsigned field_id, scope_id;
  long long timestamp, latency;
  int value_type, status;
  union {
    unsigned as_unsigned;
    unsigned long long as_unsigned_long_long;
  } value;
};

struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

struct FabricInfo {
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
};

int give_bus_id(const json& bus_id, PciInfo* info) {
  std::memset(info, 0, sizeof *info);
  return give_text(bus_id, info->bus_id, sizeof info->bus_id);
}

const json* link_of(void* device, unsigned link) {
  const json& gpu = gpu_of(device);
  if (!gpu.contains("links") || link >= gpu["links"].size()) return nullptr;
  return &gpu["links"][link];
}

int pcie_figure(void* device, const char* function, std::size_t i, unsigned* value) {
  if (const int status = refused(device, function); status != kSuccess) return status;
  const json& gpu = gpu_of(device);
  return gpu.contains("pcie") ? give_number(gpu["pcie"][i], value) : kNotSupported;
}

int between(void* a, void* b, const char* table, const std::string& key, int fallback) {
  const json& gpu = gpu_of(a);
  const std::string other = std::to_string(reinterpret_cast<std::uintptr_t>(b) - 1);
  if (!gpu.contains(table) || !gpu[table].contains(other)) return fallback;
  const json& entry = gpu[table][other];
  return key.empty() ? entry.get<int>() : entry.value(key, fallback);
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const char* const file = std::getenv("FAKE_NVML");
  std::ifstream stream(file != nullptr ? file : "");
  machine.script = json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!machine.script.is_object()) return kUnknown;
  machine.since = Clock::now();
  machine.reads.clear();
  return machine.script.value("init", kSuccess);
}
int nvmlShutdown() { return kSuccess; }

int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  return give_text(machine.script.value("driver", json()), text, length);
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return give_number(machine.script.value("cuda", json()), version);
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(machine.script.value("gpus", json::array()).size());
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<std::uintptr_t>(index) + 1);
  return refused(*device, "nvmlDeviceGetHandleByIndex_v2");
}

int nvmlDeviceGetName(void* device, char* text, unsigned length) {
  return give_text(gpu_of(device).value("name", json()), text, length);
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned length) {
  return give_text(gpu_of(device).value("uuid", json()), text, length);
}
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  return give_bus_id(gpu_of(device).value("bus_id", json()), info);
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  const int capability = gpu_of(device).value("compute_capability", 0);
  if (capability == 0) return kNotSupported;
  *major = capability / 10;
  *minor = capability % 10;
  return kSuccess;
}
int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* pending) {
  *now = *pending = gpu_of(device).value("mig", false) ? 1 : 0;
  return refused(device, "nvmlDeviceGetMigMode");
}
int nvmlDeviceGetVirtualizationMode(void* device, int* mode) {
  return give_number(gpu_of(device).value("virtualization", json(0)), mode);
}
int nvmlDeviceGetGpuFabricInfo(void* device, FabricInfo* info) {
  return give_number(gpu_of(device).value("fabric_state", json()), &info->state);
}

int nvmlDeviceGetCurrPcieLinkGeneration(void* device, unsigned* value) {
  return pcie_figure(device, "nvmlDeviceGetCurrPcieLinkGeneration", 0, value);
}
int nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* value) {
  return pcie_figure(device, "nvmlDeviceGetCurrPcieLinkWidth", 1, value);
}
int nvmlDeviceGetMaxPcieLinkGeneration(void* device, unsigned* value) {
  return pcie_figure(device, "nvmlDeviceGetMaxPcieLinkGeneration", 2, value);
}
int nvmlDeviceGetMaxPcieLinkWidth(void* device, unsigned* value) {
  return pcie_figure(device, "nvmlDeviceGetMaxPcieLinkWidth", 3, value);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, ProcessInfo* infos) {
  std::this_thread::sleep_for(std::chrono::milliseconds(gpu_of(device).value("ms_to_list_processes", 0)));
  if (const int status = refused(device, "nvmlDeviceGetComputeRunningProcesses_v3"); status != kSuccess) return status;
  const json pids = gpu_of(device).value("processes", json::array());
  const unsigned room = *count;
  *count = static_cast<unsigned>(pids.size());
  if (room < *count) return kInsufficientSize;
  for (std::size_t i = 0; i < pids.size(); ++i) infos[i] = {pids[i], 1, ~0U, ~0U};
  return kSuccess;
}

int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* state) {
  if (const int status = refused(device, "nvmlDeviceGetNvLinkState"); status != kSuccess) return status;
  if (!gpu_of(device).contains("links")) return kNotSupported;
  const json* found = link_of(device, link);
  if (found == nullptr) return kInvalidArgument;
  *state = found->value("active", true) ? 1 : 0;
  return kSuccess;
}
// "peer" of a link: "switch", "cpu", "hidden" (in a virtual machine), or the bus id of a GPU.
int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, int* type) {
  const json* found = link_of(device, link);
  if (found == nullptr) return kInvalidArgument;
  const std::string peer = found->value("peer", "hidden");
  *type = peer == "switch" ? 2 : peer == "cpu" ? 1 : peer == "hidden" ? 255 : 0;
  return kSuccess;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, PciInfo* info) {
  const json* found = link_of(device, link);
  if (found == nullptr) return kInvalidArgument;
  const std::string peer = found->value("peer", "hidden");
  if (peer == "hidden") return kNotSupported;
  return give_bus_id(peer == "switch" ? "00000000:DA:00.0" : peer == "cpu" ? "00000004:04:00.0" : json(peer), info);
}

int nvmlDeviceGetTopologyCommonAncestor(void* a, void* b, int* level) {
  *level = between(a, b, "ancestor", "", 50);
  return kSuccess;
}
int nvmlDeviceGetP2PStatus(void* a, void* b, int use, int* status) {
  *status = between(a, b, "p2p", std::to_string(use), 0);
  return refused(a, "nvmlDeviceGetP2PStatus");
}

// Counters by "field" or "field/link".
int nvmlDeviceGetFieldValues(void* device, int count, FieldValue* values) {
  if (const int status = refused(device, "nvmlDeviceGetFieldValues"); status != kSuccess) return status;
  const std::lock_guard lock(machine.mutex);
  const json counters = gpu_of(device).value("counters", json::object());
  for (int i = 0; i < count; ++i) {
    FieldValue& field = values[i];
    const bool whole = field.scope_id == ~0U || !counters.contains(std::to_string(field.field_id) + "/0");
    const std::string key = std::to_string(field.field_id) + (whole ? "" : "/" + std::to_string(field.scope_id));
    field.status = kNotSupported;
    if (!counters.contains(key)) continue;
    const std::string place = std::to_string(reinterpret_cast<std::uintptr_t>(device)) + ":" + key;
    unsigned long long value = 0;
    field.status = read_counter(counters[key], place, value);
    field.value_type = counters[key].value("type", 3);
    if (field.value_type == 1) {
      field.value.as_unsigned = static_cast<unsigned>(value);
    } else {
      field.value.as_unsigned_long_long = value;
    }
  }
  return kSuccess;
}

}  // extern "C"
