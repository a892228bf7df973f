#include "framework/interconnect/nvlink_presence.h"

#include <algorithm>

namespace lockstep {

NvmlAnswer<bool> has_active_nvlink(const Nvml& nvml, int gpu) {
  const auto links = nvml.nvlinks(gpu);
  if (!links) return {std::nullopt, links.why_not};
  const bool any = std::any_of(links->begin(), links->end(), [](const NvlinkState& link) { return link.active; });
  constexpr int kVirtualGpu = 2;
  if (!any && nvml.virtualization(gpu).value_or(0) == kVirtualGpu) return {std::nullopt, "it is a virtual GPU"};
  return {any, {}};
}

NvlinkPresence nvlink_presence() {
  const auto nvml = Nvml::open();
  if (!nvml) return NvlinkPresence::unknown;
  NvlinkPresence presence = NvlinkPresence::absent;
  for (int gpu = 0; gpu < (*nvml)->gpu_count(); ++gpu) {
    const auto active = has_active_nvlink(**nvml, gpu);
    if (active && *active) return NvlinkPresence::present;
    if (!active) presence = NvlinkPresence::unknown;
  }
  return presence;
}

}  // namespace lockstep
