#include "kernels/activation.h"

#include <numbers>

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/map.cuh"

namespace lockstep::kernels {
namespace {

// (1 + tanh(u)) / 2 is the logistic function of 2u. This is the 2u, without the factor x: 2u = x * slope(x^2).
constexpr float kSlope = 2 * std::numbers::sqrt2_v<float> * std::numbers::inv_sqrtpi_v<float>;
constexpr float kCubic = 0.044715F;
constexpr float kDensityAtZero = std::numbers::inv_sqrtpi_v<float> / std::numbers::sqrt2_v<float>;
constexpr float kRootHalf = 1 / std::numbers::sqrt2_v<float>;

// By the complementary error function: 1 + erf(x) would cancel where x is negative.
__device__ float normal_cdf(float x) { return 0.5F * erfcf(-kRootHalf * x); }

__device__ float logistic_cdf(float x) { return 1 / (1 + expf(-kSlope * x * (1 + kCubic * x * x))); }

struct Relu {
  __device__ float operator()(float x) const { return x < 0 ? 0.0F : x; }
};

struct ReluGradient {
  __device__ float operator()(float dy, float y) const { return y <= 0 ? 0.0F : dy; }
};

struct GeluErf {
  __device__ float operator()(float x) const { return x * normal_cdf(x); }
};

struct GeluErfGradient {
  __device__ float operator()(float dy, float x) const {
    return dy * (normal_cdf(x) + x * kDensityAtZero * expf(-0.5F * x * x));
  }
};

struct GeluTanh {
  __device__ float operator()(float x) const { return x * logistic_cdf(x); }
};

struct GeluTanhGradient {
  __device__ float operator()(float dy, float x) const {
    const float phi = logistic_cdf(x);
    return dy * phi * (1 + x * (1 - phi) * kSlope * (1 + 3 * kCubic * x * x));
  }
};

// Writes the rows of the gradient before a ReLU and adds them up.
template <int N, class T>
struct RectifiedRows {
  const T* dy;
  const T* y;
  T* dx;
  std::int64_t columns;
  bool vectors;

  RectifiedRows(const T* gradient, const T* output, T* target, std::int64_t width)
      : dy(gradient),
        y(output),
        dx(target),
        columns(width),
        vectors(width % N == 0 && cuda::aligned(gradient, output, target)) {}
  __device__ void operator()(std::int64_t row, std::int64_t column, int count, cuda::Floats<N>& sum) const {
    const std::int64_t at = row * columns + column;
    auto values = cuda::load<N>(dy + at, count, vectors);
    const auto outputs = cuda::load<N>(y + at, count, vectors);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[k] = ReluGradient{}(values[k], outputs[k]);
      sum[k] += values[k];
    }
    cuda::store(dx + at, values, count, vectors);
  }
};

template <class F>
void forward(const ExecContext& exec, ConstView x, View y) {
  cuda::with_float_type(x.dtype, [&]<class T>(T) { cuda::map<T>(exec, {y, false}, F{}, x.as<T>()); });
}

template <class F>
void backward(const ExecContext& exec, ConstView dy, ConstView saved, GradView dx) {
  if (!dx) return;
  cuda::with_float_type(dy.dtype, [&]<class T>(T) {
    cuda::with_float_type(dx.view.dtype, [&]<class G>(G) { cuda::map<G>(exec, dx, F{}, dy.as<T>(), saved.as<T>()); });
  });
}

}  // namespace

void cuda::relu_forward(const ExecContext& exec, ConstView x, View y) { forward<Relu>(exec, x, y); }

void cuda::relu_backward(const ExecContext& exec, ConstView dy, ConstView y, GradView dx) {
  backward<ReluGradient>(exec, dy, y, dx);
}

void cuda::relu_bias_backward(const ExecContext& exec, ConstView dy, ConstView y, View dx, GradView dbias) {
  if (!dbias) return relu_backward(exec, dy, y, {dx, false});
  const std::int64_t columns = dbias.view.numel();
  if (columns == 0) return;
  with_float_type(dy.dtype, [&]<class T>(T) {
    column_sums<kVector<T>>(exec, dy.numel() / columns, columns,
                            RectifiedRows<kVector<T>, T>(dy.as<T>(), y.as<T>(), dx.as<T>(), columns), dbias);
  });
}

void cuda::gelu_erf_forward(const ExecContext& exec, ConstView x, View y) { forward<GeluErf>(exec, x, y); }

void cuda::gelu_erf_backward(const ExecContext& exec, ConstView dy, ConstView x, GradView dx) {
  backward<GeluErfGradient>(exec, dy, x, dx);
}

void cuda::gelu_tanh_forward(const ExecContext& exec, ConstView x, View y) { forward<GeluTanh>(exec, x, y); }

void cuda::gelu_tanh_backward(const ExecContext& exec, ConstView dy, ConstView x, GradView dx) {
  backward<GeluTanhGradient>(exec, dy, x, dx);
}

}  // namespace lockstep::kernels
