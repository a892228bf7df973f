#include "kernels/elementwise.h"

#include "kernels/cuda/map.cuh"

namespace lockstep::kernels {
namespace {

struct Constant {
  float value;
  __device__ float operator()() const { return value; }
};

struct Times {
  float factor;
  __device__ float operator()(float x) const { return factor * x; }
};

struct Same {
  __device__ float operator()(float x) const { return x; }
};

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct Product {
  __device__ float operator()(float a, float b) const { return a * b; }
};

}  // namespace

void cuda::fill(const ExecContext& exec, View y, double value) {
  with_float_type(y.dtype, [&]<class T>(T) { map<T>(exec, {y, false}, Constant{static_cast<float>(value)}); });
}

void cuda::accumulate(const ExecContext& exec, ConstView source, GradView target) {
  with_float_type(source.dtype, [&]<class T>(T) {
    with_float_type(target.view.dtype, [&]<class G>(G) { map<G>(exec, target, Same{}, source.as<T>()); });
  });
}

void cuda::add(const ExecContext& exec, ConstView a, ConstView b, View y) {
  with_float_type(y.dtype, [&]<class T>(T) { map<T>(exec, {y, false}, Sum{}, a.as<T>(), b.as<T>()); });
}

void cuda::multiply(const ExecContext& exec, ConstView a, ConstView b, View y) {
  with_float_type(y.dtype, [&]<class T>(T) { map<T>(exec, {y, false}, Product{}, a.as<T>(), b.as<T>()); });
}

void cuda::multiply_backward(const ExecContext& exec, ConstView dy, ConstView other, GradView d) {
  if (!d) return;
  with_float_type(dy.dtype, [&]<class T>(T) {
    with_float_type(d.view.dtype, [&]<class G>(G) { map<G>(exec, d, Product{}, dy.as<T>(), other.as<T>()); });
  });
}

void cuda::scale(const ExecContext& exec, ConstView x, double factor, GradView y) {
  if (!y) return;
  with_float_type(x.dtype, [&]<class T>(T) {
    with_float_type(y.view.dtype, [&]<class G>(G) { map<G>(exec, y, Times{static_cast<float>(factor)}, x.as<T>()); });
  });
}

}  // namespace lockstep::kernels
