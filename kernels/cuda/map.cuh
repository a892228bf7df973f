// Elementwise kernels: y[i] = f(elements i of the inputs), or y[i] += that.
#pragma once

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace lockstep::kernels::cuda {

template <int N, class F, class Out, class... In>
__global__ void map_kernel(F f, std::int64_t n, bool vectors, bool accumulate, Out* y, const In*... inputs) {
  begin_kernel();
  for (std::int64_t i = thread_in_grid() * N; i < n; i += threads_in_grid() * N) {
    const int count = static_cast<int>(n - i < N ? n - i : N);
    const auto apply = [&](const auto&... x) {
      Floats<N> result;
#pragma unroll
      for (int k = 0; k < N; ++k) result[k] = f(x[k]...);
      return result;
    };
    write(y + i, apply(load<N>(inputs + i, count, vectors)...), count, vectors, accumulate);
  }
}

// f: a function object of floats. The inputs have as many elements as the target.
template <class Out, class F, class... In>
void map(const ExecContext& exec, const GradView& target, F f, const In*... inputs) {
  constexpr int N = kVector<Out, In...>;
  Out* const y = target.view.as<Out>();
  const std::int64_t n = target.view.numel();
  if (n == 0) return;
  Launch(exec, blocks_for(n, std::int64_t{N} * kThreads))(map_kernel<N, F, Out, In...>, f, n, aligned(y, inputs...),
                                                          target.accumulate, y, inputs...);
}

}  // namespace lockstep::kernels::cuda
