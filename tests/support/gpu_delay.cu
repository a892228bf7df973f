#include "tests/support/gpu_delay.h"

namespace lockstep::testing {
namespace {

__global__ void wait_for(std::int64_t nanoseconds) {
  std::int64_t start = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  for (std::int64_t now = start; now - start < nanoseconds;) asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
}

}  // namespace

void enqueue_delay(void* stream, std::int64_t microseconds) {
  wait_for<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(microseconds * 1000);
}

}  // namespace lockstep::testing
