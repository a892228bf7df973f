#include "kernels/scalars.h"

#include <cstring>

namespace lockstep::kernels {

void cpu::store(const ExecContext&, std::span<const std::byte> value, void* target) {
  std::memcpy(target, value.data(), value.size());
}

}  // namespace lockstep::kernels
