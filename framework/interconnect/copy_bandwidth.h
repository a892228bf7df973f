// How fast the GPU of this process copies from and to pinned memory of the host. In a build with CUDA.
#pragma once

#include <cstdint>

namespace lockstep {

// GB/s of large copies by the copy engine, in one direction at a time.
struct CopyBandwidth {
  double host_to_device = 0.0;
  double device_to_host = 0.0;
};

// On the current context's stream; the median of some copies.
CopyBandwidth measure_copies(std::int64_t bytes = std::int64_t{256} << 20);

}  // namespace lockstep
