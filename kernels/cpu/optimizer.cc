#include "kernels/optimizer.h"

#include <Eigen/Core>
#include <cmath>

#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

// Calls body(begin, end, decays) for each chunk of the range.
template <class Body>
void for_each_chunk(const ExecContext& exec, const UpdateRange& range, Body body) {
  const std::int64_t n = range.param.numel();
  const std::uint8_t* decays = range.decay.as<std::uint8_t>();
  const std::int64_t chunks = (n + kDecayChunk - 1) / kDecayChunk;
  cpu::parallel_for(exec, chunks, cpu::kElementGrain / (2 * kDecayChunk), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      body(chunk * kDecayChunk, std::min(n, (chunk + 1) * kDecayChunk), decays[chunk] != 0);
    }
  });
}

template <class T>
T gradient_scale(const UpdateRange& range) {
  return range.grad_scale == nullptr ? T(1) : static_cast<T>(*range.grad_scale);
}

}  // namespace

void cpu::sgd_step(const ExecContext& exec, const UpdateRange& range, View momentum_buffer,
                   const SgdHyperparameters& hyperparameters) {
  with_float_type(range.param.dtype, [&]<class T>(T) {
    T* param = range.param.as<T>();
    const T* grad = range.grad.as<T>();
    const T learning_rate = static_cast<T>(range.scalars->learning_rate);
    const T momentum = static_cast<T>(hyperparameters.momentum);
    const T scale = gradient_scale<T>(range);
    const bool nesterov = hyperparameters.nesterov;
    for_each_chunk(exec, range, [&](std::int64_t begin, std::int64_t end, bool decays) {
      const T decay = decays ? static_cast<T>(hyperparameters.weight_decay) : T(0);
      if (hyperparameters.momentum == 0) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) param[i] -= learning_rate * (grad[i] * scale + decay * param[i]);
        return;
      }
      T* buffer = momentum_buffer.as<T>();
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        const T g = grad[i] * scale + decay * param[i];
        const T velocity = momentum * buffer[i] + g;
        buffer[i] = velocity;
        param[i] -= learning_rate * (nesterov ? g + momentum * velocity : velocity);
      }
    });
  });
}

void cpu::adamw_step(const ExecContext& exec, const UpdateRange& range, View exp_avg, View exp_avg_sq,
                     const AdamWHyperparameters& hyperparameters) {
  with_float_type(range.param.dtype, [&]<class T>(T) {
    T* param = range.param.as<T>();
    const T* grad = range.grad.as<T>();
    T* average = exp_avg.as<T>();
    T* average_sq = exp_avg_sq.as<T>();
    const auto step = static_cast<double>(range.scalars->step);
    const double correction1 = 1 - std::pow(hyperparameters.beta1, step);
    const double correction2 = 1 - std::pow(hyperparameters.beta2, step);
    const T step_size = static_cast<T>(range.scalars->learning_rate / correction1);
    const T root_scale = static_cast<T>(1 / std::sqrt(correction2));
    const T eps = static_cast<T>(hyperparameters.eps);
    const T weight1 = static_cast<T>(1 - hyperparameters.beta1);
    const T beta2 = static_cast<T>(hyperparameters.beta2);
    const T weight2 = static_cast<T>(1 - hyperparameters.beta2);
    const T shrink = static_cast<T>(1 - range.scalars->learning_rate * hyperparameters.weight_decay);
    const T scale = gradient_scale<T>(range);
    for_each_chunk(exec, range, [&](std::int64_t begin, std::int64_t end, bool decays) {
      const T keep = decays ? shrink : T(1);
      const Eigen::Index count = end - begin;
      const Eigen::Map<const Eigen::ArrayX<T>> g(grad + begin, count);
      Eigen::Map<Eigen::ArrayX<T>> p(param + begin, count), m(average + begin, count), v(average_sq + begin, count);
      m += weight1 * (scale * g - m);
      v = beta2 * v + weight2 * (scale * g).square();
      p = keep * p - step_size * m / (v.sqrt() * root_scale + eps);
    });
  });
}

}  // namespace lockstep::kernels
