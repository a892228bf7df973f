// Delays on the streams of a GPU. In a build with CUDA.
#pragma once

#include <cstdint>

namespace lockstep::testing {

// Keeps `stream` busy for so long, with one thread.
void enqueue_delay(void* stream, std::int64_t microseconds);

}  // namespace lockstep::testing
