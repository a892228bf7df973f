// How kernels are launched.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <source_location>

#include "kernels/cuda/check.h"
#include "kernels/exec_context.h"

namespace lockstep::kernels::cuda {

inline constexpr unsigned kThreads = 256;  // of a block, where a kernel has no reason for another number

inline cudaStream_t stream_of(const ExecContext& exec) { return static_cast<cudaStream_t>(exec.stream); }

// Every kernel calls this before it reads what the kernel before it wrote, or writes to the GPU's memory. Where it was
// launched programmatically, its blocks may have been placed before that kernel ended: they wait here until its results
// can be read, and only then let the next kernel's blocks be placed. So all but that kernel had ended when a block was
// placed, and what is older may be read at once. Of a backward pass that is all that the forward pass of the same op has
// read. A block that has nothing to do may leave; not all of a grid.
__device__ inline void begin_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Blocks that cover `items`, `per_block` each. Kernels step over the grid, so that more are never needed than keep a
// GPU busy; the number depends on the problem alone, so that sums which follow the grid are the same on every GPU.
inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  constexpr std::int64_t kMostBlocks = 2048;
  return static_cast<unsigned>(std::clamp<std::int64_t>((items + per_block - 1) / per_block, 1, kMostBlocks));
}

// Bytes of shared memory that a block can have on the current GPU, where its kernel was prepared for more than 48 KiB.
inline std::size_t most_shared_bytes() {
  int device = 0;
  int bytes = 0;
  LOCKSTEP_CUDA_CHECK(cudaGetDevice(&device));
  LOCKSTEP_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return static_cast<std::size_t>(bytes);
}

// The memory that a block was given at its launch, aligned to 16 bytes; not initialised.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
}

// Launches a kernel on the context's stream: Launch(exec, blocks, threads, shared_bytes)(kernel, arguments...), or
// Launch(...).in_clusters_of(n)(kernel, arguments...).
class Launch {
 public:
  Launch(const ExecContext& exec, dim3 blocks, dim3 threads = kThreads, std::size_t shared_bytes = 0,
         const std::source_location& where = std::source_location::current())
      : where_(where), programmatic_(exec.programmatic_launch) {
    config_.gridDim = blocks;
    config_.blockDim = threads;
    config_.dynamicSmemBytes = shared_bytes;
    config_.stream = stream_of(exec);
  }

  // Neighbouring blocks of x, whose number is a multiple of `blocks`.
  Launch& in_clusters_of(unsigned blocks) {
    cluster_ = blocks;
    return *this;
  }

  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), Arguments... arguments) {
    cudaLaunchAttribute attributes[2] = {};
    config_.attrs = attributes;
    config_.numAttrs = 0;
    if (programmatic_) {
      cudaLaunchAttribute& attribute = attributes[config_.numAttrs++];
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster_ > 1) {
      cudaLaunchAttribute& attribute = attributes[config_.numAttrs++];
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim = {cluster_, 1, 1};
    }
    if (config_.dynamicSmemBytes > kUnaskedSharedBytes) allow_most_shared(reinterpret_cast<const void*>(kernel));
    check(cudaLaunchKernelEx(&config_, kernel, static_cast<Parameters>(arguments)...), where_.function_name(), where_);
  }

 private:
  static constexpr std::size_t kUnaskedSharedBytes = std::size_t{48} << 10;

  // Never less than the most: another thread may be about to launch the kernel with more than this launch needs.
  void allow_most_shared(const void* kernel) const {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, kernel), where_.function_name(), where_);
    const auto most = static_cast<int>(most_shared_bytes() - attributes.sharedSizeBytes);
    if (attributes.maxDynamicSharedSizeBytes >= most) return;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most), where_.function_name(),
          where_);
  }

  cudaLaunchConfig_t config_{};
  std::source_location where_;
  bool programmatic_;
  unsigned cluster_ = 1;
};

}  // namespace lockstep::kernels::cuda
