// Blocks of a cluster: placed at the same time, they can wait for each other and read each other's shared memory. From
// sm_90 on; kernels that use it are not launched elsewhere.
#pragma once

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/mma.cuh"

namespace lockstep::kernels::cuda {

// All threads of the cluster's blocks; what they wrote before can be read afterwards.
__device__ inline void synchronize_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __trap();
#endif
}

// What lies in shared memory of block `block` of the cluster where `own` lies in this block's.
__device__ inline std::uint32_t address_in_block(int block, const void* own) {
  std::uint32_t address = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(own)), "r"(block));
#endif
  return address;
}

// N neighbouring floats, a multiple of 4 aligned to 16 bytes, or 1.
template <int N>
__device__ Floats<N> load_from_block(int block, const float* own) {
  Floats<N> values{};
#if __CUDA_ARCH__ >= 900
  const std::uint32_t address = address_in_block(block, own);
  if constexpr (N == 1) {
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(values[0]) : "r"(address) : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(values[i]), "=f"(values[i + 1]), "=f"(values[i + 2]), "=f"(values[i + 3])
                   : "r"(address + 4 * i)
                   : "memory");
    }
  }
#endif
  return values;
}

}  // namespace lockstep::kernels::cuda
