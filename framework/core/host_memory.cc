#include "framework/core/host_memory.h"

#include <new>

#include "framework/core/context.h"
#include "framework/core/cuda_memory.h"
#include "kernels/dispatch.h"

namespace lockstep {

std::shared_ptr<void> allocate_host(std::size_t bytes) {
  constexpr std::align_val_t kAlignment{64};
  if constexpr (kernels::kHasCuda) {
    if (context().device() == DeviceType::cuda) return allocate_pinned(bytes);
  }
  return {::operator new(bytes, kAlignment), [](void* memory) { ::operator delete(memory, kAlignment); }};
}

}  // namespace lockstep
