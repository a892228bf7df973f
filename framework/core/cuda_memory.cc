#include "framework/core/cuda_memory.h"

#include <string>

#include "framework/core/cuda_check.h"
#include "framework/core/error.h"
#include "framework/core/gpu.h"

namespace lockstep {
namespace {

class CudaSource final : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override {
    void* address = nullptr;
    const cudaError_t status = cudaMalloc(&address, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check_cuda(status, "cudaMalloc");
    return address;
  }

  void release(void* address) noexcept override { log_cuda_failure(cudaFree(address), "cudaFree"); }

  Capacity capacity() const override {
    const GpuInfo gpu = selected_gpu();
    return {.name = fmt::format("GPU {} ({})", gpu.index, gpu.name),
            .total_bytes = gpu.total_bytes,
            .free_bytes = gpu.free_bytes};
  }
};

}  // namespace

std::unique_ptr<MemorySource> cuda_memory_source() { return std::make_unique<CudaSource>(); }

std::shared_ptr<void> allocate_pinned(std::size_t bytes) {
  void* address = nullptr;
  check_cuda(cudaMallocHost(&address, bytes), "cudaMallocHost");
  return {address, [](void* old) { log_cuda_failure(cudaFreeHost(old), "cudaFreeHost"); }};
}

void cuda_copy(void* to, const void* from, std::size_t bytes, void* stream) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)), "cudaMemcpyAsync");
}

void cuda_fill_zero(void* at, std::size_t bytes, void* stream) {
  check_cuda(cudaMemsetAsync(at, 0, bytes, static_cast<cudaStream_t>(stream)), "cudaMemsetAsync");
}

bool is_gpu_memory(const void* address) {
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, address), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

}  // namespace lockstep
