// Copies to, from and within the memory of a device. On a GPU they are ordered by the stream of the current context,
// which must be on that GPU.
#pragma once

#include <cstddef>

#include "kernels/exec_context.h"

namespace lockstep {

// Between the host and the device, either way. Returns when the bytes are there; on a GPU after everything that the
// stream holds.
void copy_with_host(DeviceType device, void* to, const void* from, std::size_t bytes);

// In stream order; the host does not wait.
void copy_on_device(DeviceType device, void* to, const void* from, std::size_t bytes);
void fill_zero_on_device(DeviceType device, void* at, std::size_t bytes);

}  // namespace lockstep
