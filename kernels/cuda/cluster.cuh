// Blocks of a cluster are placed at the same time and can write to each other's shared memory. From sm_90 on; kernels
// that use this are not launched elsewhere.
#pragma once

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/mma.cuh"

namespace lockstep::kernels::cuda {

// What the blocks of a cluster send each other, once in a kernel: it lies at the same place in the shared memory of
// each. A barrier counts the bytes that have come, so that nobody waits for more than for what is sent to it; they may
// come before the receiver says how many it waits for.
template <int kFloats>
struct alignas(16) Mailbox {
  float content[kFloats];
  std::uint64_t barrier;

  // By all threads, first of all.
  __device__ void open() {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier)) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#else
    __trap();
#endif
  }

  // By all threads, before they send: until every block has opened its mailbox.
  __device__ void wait_for_others() const {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
  }

  // To content[at] and the following of a block of the cluster. N is 1, or 4 or 8 where `at` is a multiple of 4.
  template <int N>
  __device__ void send(int block, int at, const Floats<N>& values) {
#if __CUDA_ARCH__ >= 900
    const std::uint32_t to = address_in(block, content + at);
    const std::uint32_t counter = address_in(block, &barrier);
    if constexpr (N == 1) {
      asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to),
                   "f"(values[0]), "r"(counter)
                   : "memory");
    } else {
#pragma unroll
      for (int i = 0; i < N; i += 4) {
        asm volatile(
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                to + 4 * i),
            "f"(values[i]), "f"(values[i + 1]), "f"(values[i + 2]), "f"(values[i + 3]), "r"(counter)
            : "memory");
      }
    }
#endif
  }

  // By all threads: until so many bytes have come.
  __device__ void wait(unsigned bytes) const {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
                   : "memory");
    }
    std::uint32_t complete = 0;
    do {
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\n"
          "selp.u32 %0, 1, 0, p;\n"
          "}"
          : "=r"(complete)
          : "r"(shared_address(&barrier))
          : "memory");
    } while (complete == 0);
#endif
  }

 private:
  // Of what lies in that block's shared memory where `own` lies in this block's.
  static __device__ std::uint32_t address_in(int block, const void* own) {
    std::uint32_t address = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(own)), "r"(block));
#endif
    return address;
  }
};

}  // namespace lockstep::kernels::cuda
