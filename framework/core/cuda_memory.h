// Memory of the process's GPU, and pinned memory of the host. Defined in a build with CUDA only.
#pragma once

#include <cstddef>
#include <memory>

#include "framework/core/allocator.h"

namespace lockstep {

// cudaMalloc on the GPU that is selected when it is asked. Blocks are reused by CachingAllocator without waiting for
// the GPU: their users are ordered by the compute stream, which waits for what other streams do with them, so the next
// user comes after the last.
std::unique_ptr<MemorySource> cuda_memory_source();

// Host memory that the GPU copies from and to while the host goes on, freed with its last holder. Fits HostAllocator.
std::shared_ptr<void> allocate_pinned(std::size_t bytes);

// Enqueued on `stream`, between any two memories. With memory that is not pinned on the host's side it may wait.
void cuda_copy(void* to, const void* from, std::size_t bytes, void* stream);
void cuda_fill_zero(void* at, std::size_t bytes, void* stream);

// Whether a kernel may use this address.
bool is_gpu_memory(const void* address);

}  // namespace lockstep
