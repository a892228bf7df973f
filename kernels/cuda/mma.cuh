// Products of small bf16 tiles on the tensor cores of a warp, sums in f32, and the copies that feed them. The layouts
// of the fragments are those of mma.m16n8k16 in the PTX manual. With g = lane / 4 and t = lane % 4 a lane holds
// - of a (16 x 16) rows g and g + 8 of columns 2t, 2t + 1, then the same of columns 2t + 8, 2t + 9;
// - of b (16 x 8) rows 2t, 2t + 1 of column g, then rows 2t + 8, 2t + 9;
// - of c (16 x 8) columns 2t, 2t + 1 of row g, then of row g + 8.
#pragma once

#include <cstdint>

#include "kernels/cuda/element.cuh"

namespace lockstep::kernels::cuda {

// Two neighbouring elements, the first in the lower half.
__device__ inline std::uint32_t pack(bfloat16 low, bfloat16 high) {
  return low.bits | static_cast<std::uint32_t>(high.bits) << 16;
}

// c += a b
__device__ inline void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline std::uint32_t shared_address(const void* memory) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
}

// Four 8 x 8 matrices from shared memory, of which lane l gives the address of row l % 8 of matrix l / 8, aligned to 16
// bytes. The lane gets elements (g, 2t) and (g, 2t + 1) of each; of their transposes in load_transposed.
__device__ inline void load_matrices(std::uint32_t (&m)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void load_transposed(std::uint32_t (&m)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row))
               : "memory");
}

// Copies kBytes (4, 8 or 16) to shared memory without waiting, or writes zeros there; both addresses are aligned to
// that.
template <int kBytes>
__device__ void copy_async(void* shared, const void* global, bool zeros) {
  const int count = zeros ? 0 : kBytes;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(count)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)), "l"(global),
                 "n"(kBytes), "r"(count)
                 : "memory");
  }
}
// Closes the group of copies that the thread has started.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kOpen of the thread's latest groups are under way.
template <int kOpen>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

}  // namespace lockstep::kernels::cuda
