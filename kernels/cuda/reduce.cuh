// Sums and maxima over the threads of a warp, of a block, and of a grid. The order of the additions is fixed: the same
// bits in every run. Every thread of the warp or block must take part.
#pragma once

#include <cstdint>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace lockstep::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kWholeWarp = 0xFFFFFFFF;

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

// A NaN is never the larger.
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Over kLanes neighbouring lanes, a power of 2. The result is the same in each of them.
template <int kLanes = kWarp, class Combine, class T>
__device__ T warp_reduce(T value, Combine combine) {
  unsigned lanes = kWholeWarp;
  if constexpr (kLanes < kWarp) lanes = ((1U << kLanes) - 1) << (threadIdx.x % kWarp / kLanes * kLanes);
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value = combine(value, __shfl_xor_sync(lanes, value, distance));
  }
  return value;
}

// The result is the same in every thread. blockDim.x is a multiple of 32; `nothing` changes no value that it is
// combined with.
template <class Combine, class T>
__device__ T block_reduce(T value, T nothing, Combine combine) {
  __shared__ T of_warp[kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  value = warp_reduce(value, combine);
  if (lane == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = warp_reduce(lane < blockDim.x / kWarp ? of_warp[lane] : nothing, combine);
  __syncthreads();  // the next reduction writes the same memory
  return value;
}

// A row of a matrix is the work of kLanes neighbouring lanes of a warp, or, where rows are long, of a block.
inline constexpr int kWholeBlock = 0;

template <int kLanes>
struct RowGroup {
  static constexpr bool kByBlock = kLanes == kWholeBlock;

  static __device__ int size() { return kByBlock ? static_cast<int>(blockDim.x) : kLanes; }
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % size(); }
  static __device__ std::int64_t first_row() { return thread_in_grid() / size(); }
  static __device__ std::int64_t row_step() { return threads_in_grid() / size(); }

  template <class T>
  static __device__ T sum(T value) {
    if constexpr (kByBlock) {
      return block_reduce(value, T{0}, Plus{});
    } else {
      return warp_reduce<kLanes>(value, Plus{});
    }
  }
  static __device__ float largest(float value) {
    if constexpr (kByBlock) {
      return block_reduce(value, -INFINITY, Larger{});
    } else {
      return warp_reduce<kLanes>(value, Larger{});
    }
  }
};

// The sum of what the blocks of a grid found. A grid of one block writes the result itself; otherwise the blocks leave
// their sums in the workspace, and a second kernel adds them.
struct GridSum {
  double* partials = nullptr;  // one for each block
  double factor = 1;           // of the result

  // Called by one thread of each block.
  template <class Write>
  __device__ void put(double block_sum, Write write) const {
    if (gridDim.x == 1) {
      write(factor * block_sum);
    } else {
      partials[blockIdx.x] = block_sum;
    }
  }
};

struct WriteFloat {
  Scalar target;
  __device__ void operator()(double value) const { target.write(static_cast<float>(value)); }
};

struct WriteInteger {
  std::int32_t* target;
  __device__ void operator()(double value) const { *target = static_cast<std::int32_t>(value); }
};

inline GridSum grid_sum(const ExecContext& exec, unsigned blocks, double factor) {
  return {blocks == 1 ? nullptr : static_cast<double*>(exec.workspace->reserve(blocks * sizeof(double))), factor};
}

template <class Write>
__global__ void add_partials(GridSum sum, int count, Write write) {
  begin_kernel();
  double total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) total += sum.partials[i];
  total = block_reduce(total, 0.0, Plus{});
  if (threadIdx.x == 0) write(sum.factor * total);
}

// The second kernel, where it takes one.
template <class Write>
void finish(const ExecContext& exec, const GridSum& sum, unsigned blocks, Write write) {
  if (blocks > 1) Launch(exec, 1)(add_partials<Write>, sum, static_cast<int>(blocks), write);
}

}  // namespace lockstep::kernels::cuda
