// Sums over the rows of a matrix: gradients of biases and of what a norm scales by.
#pragma once

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace lockstep::kernels::cuda {

// Rows that a thread adds before it is worth to have another.
inline constexpr std::int64_t kThreadRows = 16;

// How the sums are laid out. A block is a tile of column vectors x rows; the grid is column tiles x parts of the rows.
// It depends on the shape alone.
struct ColumnTiling {
  unsigned tile;          // column vectors of a block
  unsigned column_tiles;  // of the grid
  unsigned parts;         // of the grid; where there are several, a second kernel adds their sums
  std::int64_t part_rows;

  ColumnTiling(std::int64_t rows, std::int64_t columns, int vector, std::int64_t thread_rows = kThreadRows) {
    // Wide tiles read memory in long runs; few rows make few blocks: there tiles are narrow.
    constexpr unsigned kFewBlocks = 64;
    const std::int64_t vectors = (columns + vector - 1) / vector;
    tile = 1;
    while (tile < 32U && tile < vectors) tile *= 2;
    lay_out(rows, vectors, thread_rows);
    while (tile > 2 && column_tiles * parts < kFewBlocks) {
      tile /= 2;
      lay_out(rows, vectors, thread_rows);
    }
  }

 private:
  void lay_out(std::int64_t rows, std::int64_t vectors, std::int64_t thread_rows) {
    constexpr std::int64_t kMostParts = 1024;
    column_tiles = static_cast<unsigned>((vectors + tile - 1) / tile);
    const std::int64_t lane_rows = thread_rows * (kThreads / tile);
    const bool few = rows <= 2 * lane_rows;
    const std::int64_t most = std::max<std::int64_t>(1, kMostParts / column_tiles);
    const std::int64_t wanted = few ? 1 : std::min(most, (rows + lane_rows - 1) / lane_rows);
    part_rows = std::max<std::int64_t>(1, (rows + wanted - 1) / wanted);
    parts = static_cast<unsigned>(std::max<std::int64_t>(1, (rows + part_rows - 1) / part_rows));
  }
};

// Adds the calling block's tile over its part of the rows. rows_of(row, column, count) gives K vectors of N elements;
// the sums come back in the threads of the first row lane (threadIdx.x < tile). Once in a kernel: a second call would
// write to shared memory that slow threads still read for the first.
template <int K, int N, class RowsOf>
__device__ void sum_tile(const ColumnTiling& tiling, std::int64_t rows, std::int64_t columns, RowsOf rows_of,
                         Floats<N> (&sums)[K]) {
  const unsigned lane = threadIdx.x % tiling.tile;
  const unsigned row_lane = threadIdx.x / tiling.tile;
  const unsigned row_lanes = kThreads / tiling.tile;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * tiling.tile + lane) * N;
  const std::int64_t left = columns - column;
  const int count = static_cast<int>(left < 0 ? 0 : left < N ? left : N);
  const std::int64_t begin = blockIdx.y * tiling.part_rows;
  const std::int64_t end = begin + tiling.part_rows < rows ? begin + tiling.part_rows : rows;
  // All threads step together: where some left this loop early, ptxas of CUDA 13.0 let them run ahead of their warp.
#pragma unroll 4
  for (std::int64_t step = begin; step < end; step += row_lanes) {
    if (count > 0 && step + row_lane < end) rows_of(step + row_lane, column, count, sums);
  }
  __shared__ float shared[kThreads * N];
#pragma unroll
  for (int s = 0; s < K; ++s) {
    if (s > 0) __syncthreads();
    // Halves the row lanes until one is left; what a lane writes was read by nobody before.
    for (unsigned half = row_lanes / 2; half > 0; half /= 2) {
      if (row_lane >= half && row_lane < 2 * half) {
#pragma unroll
        for (int k = 0; k < N; ++k) shared[k * kThreads + threadIdx.x] = sums[s][k];
      }
      __syncthreads();
      if (row_lane < half) {
#pragma unroll
        for (int k = 0; k < N; ++k) sums[s][k] += shared[k * kThreads + threadIdx.x + half * tiling.tile];
      }
    }
  }
}

// rows_of(row, column, count, sum) adds to a vector of N sums. Writes nothing where target is null.
template <int N, class RowsOf, class Out>
__global__ void column_sums_kernel(ColumnTiling tiling, std::int64_t rows, std::int64_t columns, RowsOf rows_of,
                                   bool accumulate, Out* target) {
  begin_kernel();
  Floats<N> sums[1] = {};
  sum_tile<1, N>(
      tiling, rows, columns,
      [=](std::int64_t row, std::int64_t column, int count, Floats<N>(&sum)[1]) {
        rows_of(row, column, count, sum[0]);
      },
      sums);
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * tiling.tile + threadIdx.x) * N;
  if (target == nullptr || threadIdx.x >= tiling.tile || column >= columns) return;
  const int count = static_cast<int>(columns - column < N ? columns - column : N);
  write(target + blockIdx.y * columns + column, sums[0], count, false, accumulate);
}

// The rows of a matrix as they lie in memory.
template <int N, class T>
struct MatrixRows {
  const T* matrix;
  std::int64_t columns;
  bool vectors;

  MatrixRows(const T* address, std::int64_t width)
      : matrix(address), columns(width), vectors(width % N == 0 && aligned(address)) {}
  __device__ void operator()(std::int64_t row, std::int64_t column, int count, Floats<N>& sum) const {
    const auto values = load<N>(matrix + row * columns + column, count, vectors);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += values[k];
  }
};

inline constexpr int kRowColumns = 8;  // of a block of add_rows_kernel: 32 bytes of a row

template <class Out>
__global__ void __launch_bounds__(kThreads)
    add_rows_kernel(const float* matrix, int rows, int columns, bool accumulate, Out* target) {
  constexpr int kLanes = kThreads / kRowColumns;
  __shared__ float parts[kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int column = static_cast<int>(blockIdx.x) * kRowColumns + thread % kRowColumns;
  const bool exists = column < columns;
  begin_kernel();
  float sum = 0;
  in_batches<8>(
      thread / kRowColumns, exists ? rows : 0, kLanes, [&](int row) { return matrix[row * columns + column]; },
      [&](int, float value) { sum += value; });
  parts[thread] = sum;
  __syncthreads();
  if (thread >= kRowColumns || !exists) return;
  sum = 0;
#pragma unroll 8
  for (int lane = 0; lane < kLanes; ++lane) sum += parts[lane * kRowColumns + thread];
  write(target + column, Floats<1>{{sum}}, 1, false, accumulate);
}

// target (+)= the sum of a few rows of f32, by one kernel: the second stage of sums that were left in parts. Does
// nothing where the target is null.
inline void add_rows(const ExecContext& exec, const float* matrix, std::int64_t rows, const GradView& target) {
  if (!target) return;
  const auto columns = static_cast<int>(target.view.numel());
  with_float_type(target.view.dtype, [&]<class Out>(Out) {
    Launch(exec, static_cast<unsigned>((columns + kRowColumns - 1) / kRowColumns))(
        add_rows_kernel<Out>, matrix, static_cast<int>(rows), columns, target.accumulate, target.view.as<Out>());
  });
}

// target (+)= for each column the sum over all rows of what rows_of adds; called once for each row and vector of N
// columns, also where the target is null. Takes the workspace. thread_rows: fewer where a row is much work.
template <int N, class RowsOf>
void column_sums(const ExecContext& exec, std::int64_t rows, std::int64_t columns, const RowsOf& rows_of,
                 const GradView& target, std::int64_t thread_rows = kThreadRows) {
  const ColumnTiling tiling(rows, columns, N, thread_rows);
  const dim3 grid(tiling.column_tiles, tiling.parts);
  const auto launch = [&]<class Out>(Out* sums, bool accumulate) {
    Launch(exec, grid)(column_sums_kernel<N, RowsOf, Out>, tiling, rows, columns, rows_of, accumulate, sums);
  };
  if (!target) return launch(static_cast<float*>(nullptr), false);
  with_float_type(target.view.dtype, [&]<class G>(G) {
    G* const out = target.view.as<G>();
    if (tiling.parts == 1) return launch(out, target.accumulate);
    auto* const partials =
        static_cast<float*>(exec.workspace->reserve(static_cast<std::size_t>(tiling.parts * columns) * sizeof(float)));
    launch(partials, false);
    add_rows(exec, partials, tiling.parts, target);
  });
}

}  // namespace lockstep::kernels::cuda
