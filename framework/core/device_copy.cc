#include "framework/core/device_copy.h"

#include <cstring>

#include "framework/core/context.h"
#include "framework/core/cuda_memory.h"
#include "framework/core/error.h"
#include "framework/core/stream.h"
#include "kernels/dispatch.h"

namespace lockstep {
namespace {

// Calls `body` with the stream where `device` is a GPU; false where it is not.
template <class Body>
bool on_gpu(DeviceType device, const Body& body) {
  if constexpr (kernels::kHasCuda) {
    if (device == DeviceType::cuda) {
      expect(context().device() == DeviceType::cuda,
             "tensor: expected the context of its GPU to be current, got one of the CPU");
      body(context().exec().stream);
      return true;
    }
  }
  return false;
}

}  // namespace

void copy_with_host(DeviceType device, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const bool copied = on_gpu(device, [&](void* stream) {
    cuda_copy(to, from, bytes, stream);
    synchronize(stream);
  });
  if (!copied) std::memcpy(to, from, bytes);
}

void copy_on_device(DeviceType device, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
  if (!on_gpu(device, [&](void* stream) { cuda_copy(to, from, bytes, stream); })) std::memcpy(to, from, bytes);
}

void fill_zero_on_device(DeviceType device, void* at, std::size_t bytes) {
  if (bytes == 0) return;
  if (!on_gpu(device, [&](void* stream) { cuda_fill_zero(at, bytes, stream); })) std::memset(at, 0, bytes);
}

}  // namespace lockstep
