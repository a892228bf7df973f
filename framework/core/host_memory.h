// Memory of the host that copies from and to the device may use while the host goes on.
#pragma once

#include <cstddef>
#include <memory>

namespace lockstep {

// Aligned to 64, freed with its last holder; pinned where the current context is on a GPU, whose kernels may then use
// it too.
std::shared_ptr<void> allocate_host(std::size_t bytes);

}  // namespace lockstep
