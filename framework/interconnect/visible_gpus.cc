#include "framework/interconnect/visible_gpus.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <string>

namespace lockstep {
namespace {

// -1 where `entry` names none.
int gpu_of(const std::string& entry, const Nvml& nvml) {
  int index = -1;
  const char* const end = entry.data() + entry.size();
  if (const auto [stop, failure] = std::from_chars(entry.data(), end, index); failure == std::errc{} && stop == end) {
    return index < nvml.gpu_count() ? index : -1;
  }
  if (!entry.starts_with("GPU-")) return -1;
  for (int gpu = 0; gpu < nvml.gpu_count(); ++gpu) {
    if (nvml.uuid(gpu).value_or("").starts_with(entry)) return gpu;  // a beginning is enough
  }
  return -1;
}

bool order_is_known(const Nvml& nvml) {
  const char* order = std::getenv("CUDA_DEVICE_ORDER");
  if (order != nullptr && std::string(order) == "PCI_BUS_ID") return true;
  for (int gpu = 1; gpu < nvml.gpu_count(); ++gpu) {
    if (nvml.name(gpu).value_or("") != nvml.name(0).value_or("")) return false;
  }
  return true;
}

}  // namespace

std::vector<int> visible_gpus(const Nvml& nvml) {
  std::vector<int> all(static_cast<std::size_t>(nvml.gpu_count()));
  std::iota(all.begin(), all.end(), 0);
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr || !order_is_known(nvml)) return all;
  std::vector<int> visible;
  std::istringstream stream(list);
  for (std::string entry; std::getline(stream, entry, ',');) {
    entry.erase(std::remove(entry.begin(), entry.end(), ' '), entry.end());
    const int gpu = gpu_of(entry, nvml);
    if (gpu < 0 || std::find(visible.begin(), visible.end(), gpu) != visible.end()) break;
    visible.push_back(gpu);
  }
  return visible;
}

}  // namespace lockstep
