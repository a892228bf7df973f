#include "kernels/activation.h"

#include <unsupported/Eigen/SpecialFunctions>

#include <numbers>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/lanes.h"

namespace lockstep::kernels {
namespace {

// (1 + tanh(u)) / 2 is the logistic function of 2u. This is the 2u, without the factor x: 2u = x * slope(x^2).
template <class T>
constexpr T kSlope = T(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
template <class T>
constexpr T kCubic = T(0.044715);

template <class T>
cpu::Lanes<T> normal_cdf(const cpu::Lanes<T>& x) {
  return T(0.5) * (T(1) + (x * T(1 / std::numbers::sqrt2)).erf());
}

}  // namespace

void cpu::relu_forward(const ExecContext& exec, ConstView x, View y) {
  with_float_type(x.dtype, [&]<class T>(T) {
    const T* in = x.as<T>();
    T* out = y.as<T>();
    parallel_for(exec, x.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) out[i] = in[i] < T(0) ? T(0) : in[i];
    });
  });
}

void cpu::relu_backward(const ExecContext& exec, ConstView dy, ConstView y, GradView dx) {
  if (!dx) return;
  with_float_type(dy.dtype, [&]<class T>(T) {
    const T* grad = dy.as<T>();
    const T* out = y.as<T>();
    T* target = dx.view.as<T>();
    with_write_mode(dx, [&](auto accumulate) {
      parallel_for(exec, dy.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) write<accumulate>(target[i], out[i] <= T(0) ? T(0) : grad[i]);
      });
    });
  });
}

void cpu::relu_bias_backward(const ExecContext& exec, ConstView dy, ConstView y, View dx, GradView dbias) {
  relu_backward(exec, dy, y, {dx, false});
  if (!dbias) return;
  with_float_type(dx.dtype, [&]<class T>(T) {
    const std::int64_t columns = dbias.view.numel();
    column_sums<T>(exec, dx.as<T>(), columns == 0 ? 0 : dx.numel() / columns, columns, dbias);
  });
}

void cpu::gelu_erf_forward(const ExecContext& exec, ConstView x, View y) {
  with_float_type(x.dtype, [&]<class T>(T) {
    map_lanes<T>(exec, {y, false}, [in = x.as<T>()](std::int64_t i, std::int64_t count) -> Lanes<T> {
      const Lanes<T> v = load_lanes(in + i, count);
      return v * normal_cdf<T>(v);
    });
  });
}

void cpu::gelu_erf_backward(const ExecContext& exec, ConstView dy, ConstView x, GradView dx) {
  if (!dx) return;
  with_float_type(x.dtype, [&]<class T>(T) {
    map_lanes<T>(exec, dx, [in = x.as<T>(), grad = dy.as<T>()](std::int64_t i, std::int64_t count) -> Lanes<T> {
      constexpr T kDensityAtZero = T(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
      const Lanes<T> v = load_lanes(in + i, count);
      return load_lanes(grad + i, count) * (normal_cdf<T>(v) + v * kDensityAtZero * (T(-0.5) * v * v).exp());
    });
  });
}

void cpu::gelu_tanh_forward(const ExecContext& exec, ConstView x, View y) {
  with_float_type(x.dtype, [&]<class T>(T) {
    map_lanes<T>(exec, {y, false}, [in = x.as<T>()](std::int64_t i, std::int64_t count) -> Lanes<T> {
      const Lanes<T> v = load_lanes(in + i, count);
      return v / (T(1) + (-kSlope<T> * v * (T(1) + kCubic<T> * v * v)).exp());
    });
  });
}

void cpu::gelu_tanh_backward(const ExecContext& exec, ConstView dy, ConstView x, GradView dx) {
  if (!dx) return;
  with_float_type(x.dtype, [&]<class T>(T) {
    map_lanes<T>(exec, dx, [in = x.as<T>(), grad = dy.as<T>()](std::int64_t i, std::int64_t count) -> Lanes<T> {
      const Lanes<T> v = load_lanes(in + i, count);
      const Lanes<T> square = kCubic<T> * v * v;
      const Lanes<T> phi = T(1) / (T(1) + (-kSlope<T> * v * (T(1) + square)).exp());
      return load_lanes(grad + i, count) * phi * (T(1) + v * (T(1) - phi) * kSlope<T> * (T(1) + T(3) * square));
    });
  });
}

}  // namespace lockstep::kernels
