// A small struct that kernels read from the memory of the device, so that a captured step reads what was stored before
// its replay instead of what was true when it was captured.
#pragma once

#include <memory>
#include <span>
#include <type_traits>

#include "framework/core/allocator.h"
#include "kernels/dispatch.h"
#include "kernels/scalars.h"

namespace lockstep {

template <class T>
class DeviceValue {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 4 == 0 && sizeof(T) <= kernels::kMaxStoreBytes);

 public:
  // Not initialised.
  explicit DeviceValue(DeviceType device) : memory_(allocate_shared(device, sizeof(T))) {}

  // In stream order; `value` may be changed at once.
  void store(const ExecContext& exec, const T& value) {
    LOCKSTEP_DISPATCH(store, exec, std::as_bytes(std::span(&value, 1)), memory_.get());
  }
  // The same address for ever.
  T* get() const { return static_cast<T*>(memory_.get()); }

 private:
  std::shared_ptr<void> memory_;
};

}  // namespace lockstep
