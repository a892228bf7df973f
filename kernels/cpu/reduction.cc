#include "kernels/reduction.h"

#include "kernels/cpu/sum.h"

namespace lockstep::kernels {

void cpu::sum(const ExecContext& exec, ConstView x, double factor, View y) {
  with_float_type(x.dtype, [&]<class T>(T) {
    constexpr std::int64_t kBlock = 4096;
    const double total = blocked_sum(exec, x.numel(), kBlock, 2 * kElementGrain / kBlock,
                                     [in = x.as<T>()](std::int64_t begin, std::int64_t end) {
                                       return lane_sum<T>(begin, end, [in](std::int64_t i) { return in[i]; });
                                     });
    *y.as<T>() = static_cast<T>(factor * total);
  });
}

void cpu::sum_backward(const ExecContext& exec, ConstView dy, double factor, GradView dx) {
  if (!dx) return;
  with_float_type(dy.dtype, [&]<class T>(T) {
    const T value = static_cast<T>(factor * static_cast<double>(*dy.as<T>()));
    T* target = dx.view.as<T>();
    with_write_mode(dx, [&](auto accumulate) {
      parallel_for(exec, dx.view.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) write<accumulate>(target[i], value);
      });
    });
  });
}

}  // namespace lockstep::kernels
