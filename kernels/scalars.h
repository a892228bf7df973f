// Small values that change from step to step and that kernels read from the memory of the device.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/exec_context.h"

namespace lockstep::kernels {

inline constexpr std::size_t kMaxStoreBytes = 64;

// target = value, byte for byte. value: host memory, a multiple of 4 and at most kMaxStoreBytes bytes; target: memory
// of the device, aligned to 4. On a GPU the value travels as the argument of a kernel of one thread: the caller may
// change it at once, while a copy out of pinned memory would see what a host that runs ahead has written there since.
using Store = void(const ExecContext& exec, std::span<const std::byte> value, void* target);

namespace cpu {
Store store;
}  // namespace cpu
namespace cuda {
Store store;
}  // namespace cuda

}  // namespace lockstep::kernels
