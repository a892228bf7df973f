#include "kernels/embedding.h"

#include "kernels/cuda/map.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/elementwise.h"

namespace lockstep::kernels {
namespace {

using cuda::kWarp;
using cuda::kWholeWarp;
using std::int64_t;

// An index outside the table gives a row of NaN, since a kernel cannot throw.
template <class T>
__global__ void forward_kernel(const T* table, int64_t rows, int64_t columns, const std::int32_t* indices, int64_t n,
                               bool vectors, T* y) {
  constexpr int N = cuda::kVector<T>;
  cuda::begin_kernel();
  const int64_t units = (columns + N - 1) / N;  // of a row
  for (int64_t unit = cuda::thread_in_grid(); unit < n * units; unit += cuda::threads_in_grid()) {
    const int64_t row = cuda::quotient(unit, units);
    const int64_t column = (unit - row * units) * N;
    const int count = static_cast<int>(columns - column < N ? columns - column : N);
    const int64_t index = indices[row];
    cuda::Floats<N> values;
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] = NAN;
    if (index >= 0 && index < rows) values = cuda::load<N>(table + index * columns + column, count, vectors);
    cuda::store(y + row * columns + column, values, count, vectors);
  }
}

// True where an earlier place holds the same index.
__device__ bool seen_before(const std::int32_t* indices, int64_t place, int index) {
  const int64_t lane = threadIdx.x % kWarp;
  for (int64_t end = place; end > 0; end -= kWarp) {
    const int64_t i = end - 1 - lane;
    if (__any_sync(kWholeWarp, i >= 0 && indices[i] == index)) return true;
  }
  return false;
}

// A warp for each place in `indices` and each strip of kWarp * N columns. The warp at the first place of an index adds
// the gradients of all places that hold it, in order.
template <int N, class T, class G>
__global__ void backward_kernel(const T* dy, const std::int32_t* indices, int64_t n, int64_t rows, int64_t columns,
                                bool vectors, G* dtable) {
  cuda::begin_kernel();
  const int64_t strips = (columns + kWarp * N - 1) / (kWarp * N);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  for (int64_t unit = cuda::thread_in_grid() / kWarp; unit < n * strips; unit += cuda::threads_in_grid() / kWarp) {
    const int64_t place = cuda::quotient(unit, strips);
    const int index = indices[place];
    if (index < 0 || index >= rows || seen_before(indices, place, index)) continue;
    const int64_t column = ((unit - place * strips) * kWarp + lane) * N;
    const int64_t left = columns - column;
    const int count = static_cast<int>(left < 0 ? 0 : left < N ? left : N);
    cuda::Floats<N> sum{};
    for (int64_t begin = place; begin < n; begin += kWarp) {
      unsigned same = __ballot_sync(kWholeWarp, begin + lane < n && indices[begin + lane] == index);
      for (; same != 0; same &= same - 1) {
        const auto grad = cuda::load<N>(dy + (begin + __ffs(same) - 1) * columns + column, count, vectors);
#pragma unroll
        for (int k = 0; k < N; ++k) sum[k] += grad[k];
      }
    }
    cuda::write(dtable + index * columns + column, sum, count, vectors, true);
  }
}

}  // namespace

void cuda::embedding_forward(const ExecContext& exec, ConstView table, ConstView indices, View y) {
  if (y.numel() == 0) return;
  with_float_type(table.dtype, [&]<class T>(T) {
    constexpr int N = kVector<T>;
    const int64_t columns = table.shape[1];
    const int64_t units = indices.numel() * ((columns + N - 1) / N);
    Launch(exec, blocks_for(units, kThreads))(forward_kernel<T>, table.as<T>(), table.shape[0], columns,
                                              indices.as<std::int32_t>(), indices.numel(),
                                              columns % N == 0 && aligned(table.as<T>(), y.as<T>()), y.as<T>());
  });
}

void cuda::embedding_backward(const ExecContext& exec, ConstView dy, ConstView indices, GradView dtable) {
  if (!dtable) return;
  if (!dtable.accumulate) fill(exec, dtable.view, 0);
  if (dy.numel() == 0) return;
  with_float_type(dy.dtype, [&]<class T>(T) {
    with_float_type(dtable.view.dtype, [&]<class G>(G) {
      constexpr int N = kVector<T, G>;
      const int64_t columns = dtable.view.shape[1];
      const int64_t strips = (columns + kWarp * N - 1) / (kWarp * N);
      Launch(exec, blocks_for(indices.numel() * strips, kThreads / kWarp))(
          backward_kernel<N, T, G>, dy.as<T>(), indices.as<std::int32_t>(), indices.numel(), dtable.view.shape[0],
          columns, columns % N == 0 && aligned(dy.as<T>(), dtable.view.as<G>()), dtable.view.as<G>());
    });
  });
}

}  // namespace lockstep::kernels
