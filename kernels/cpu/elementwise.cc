#include "kernels/elementwise.h"

#include "kernels/bfloat16.h"
#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

// y[i] = f(i) over all elements, or y[i] += f(i).
template <class T, class F>
void map(const ExecContext& exec, GradView y, F f) {
  T* out = y.view.as<T>();
  cpu::with_write_mode(y, [&](auto accumulate) {
    cpu::parallel_for(exec, y.view.numel(), cpu::kElementGrain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) cpu::write<accumulate>(out[i], f(i));
    });
  });
}

template <class T>
auto widened(T x) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return float_of(x);
  } else {
    return x;
  }
}

template <class T, class Wide>
T narrowed(Wide x) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return bfloat16_of(x);
  } else {
    return x;
  }
}

template <class In, class Out>
void accumulate_as(const ExecContext& exec, ConstView source, GradView target) {
  const In* in = source.as<In>();
  Out* out = target.view.as<Out>();
  cpu::with_write_mode(target, [&](auto accumulate) {
    cpu::parallel_for(exec, source.numel(), cpu::kElementGrain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        auto value = widened(in[i]);
        if constexpr (accumulate) value += widened(out[i]);
        out[i] = narrowed<Out>(value);
      }
    });
  });
}

}  // namespace

void cpu::fill(const ExecContext& exec, View y, double value) {
  with_float_type(y.dtype, [&]<class T>(T) {
    map<T>(exec, {y, false}, [v = static_cast<T>(value)](auto) { return v; });
  });
}

void cpu::accumulate(const ExecContext& exec, ConstView source, GradView target) {
  if (source.dtype == DType::bf16) {
    target.view.dtype == DType::bf16 ? accumulate_as<bfloat16, bfloat16>(exec, source, target)
                                     : accumulate_as<bfloat16, float>(exec, source, target);
  } else if (target.view.dtype == DType::bf16) {
    accumulate_as<float, bfloat16>(exec, source, target);
  } else {
    with_float_type(source.dtype, [&]<class T>(T) { accumulate_as<T, T>(exec, source, target); });
  }
}

void cpu::add(const ExecContext& exec, ConstView a, ConstView b, View y) {
  with_float_type(y.dtype, [&]<class T>(T) {
    map<T>(exec, {y, false}, [p = a.as<T>(), q = b.as<T>()](auto i) { return p[i] + q[i]; });
  });
}

void cpu::multiply(const ExecContext& exec, ConstView a, ConstView b, View y) {
  with_float_type(y.dtype, [&]<class T>(T) {
    map<T>(exec, {y, false}, [p = a.as<T>(), q = b.as<T>()](auto i) { return p[i] * q[i]; });
  });
}

void cpu::multiply_backward(const ExecContext& exec, ConstView dy, ConstView other, GradView d) {
  with_float_type(dy.dtype, [&]<class T>(T) {
    map<T>(exec, d, [p = dy.as<T>(), q = other.as<T>()](auto i) { return p[i] * q[i]; });
  });
}

void cpu::scale(const ExecContext& exec, ConstView x, double factor, GradView y) {
  with_float_type(x.dtype, [&]<class T>(T) {
    map<T>(exec, y, [p = x.as<T>(), f = static_cast<T>(factor)](auto i) { return f * p[i]; });
  });
}

}  // namespace lockstep::kernels
