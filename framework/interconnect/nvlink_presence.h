// Whether there is NVLink at all: the first question, before what joins which GPUs.
#pragma once

#include <cstdint>

#include "framework/interconnect/nvml.h"

namespace lockstep {

// Unknown: no driver, or one that does not tell.
enum class NvlinkPresence : std::uint8_t { absent, present, unknown };

// Whether a GPU has an active NVLink; a virtual GPU (vGPU) does not tell.
NvmlAnswer<bool> has_active_nvlink(const Nvml& nvml, int gpu);
// Whether any GPU of this host has.
NvlinkPresence nvlink_presence();

}  // namespace lockstep
