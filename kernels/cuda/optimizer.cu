// Each block steps over chunks of kDecayChunk elements: one decay byte a block, one vector of 4 a thread.
#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace lockstep::kernels {
namespace {

using std::int64_t;

constexpr int N = 4;
static_assert(kDecayChunk == N * cuda::kThreads);

// A range as a kernel sees it.
template <class G>
struct Range {
  int64_t n;
  float* param;
  const G* grad;
  const std::uint8_t* decay;
  const double* grad_scale;
  const StepScalars* scalars;
  bfloat16* compute_copy;
  bool vectors;

  explicit Range(const UpdateRange& range)
      : n(range.param.numel()),
        param(range.param.as<float>()),
        grad(range.grad.as<G>()),
        decay(range.decay.as<std::uint8_t>()),
        grad_scale(range.grad_scale),
        scalars(range.scalars),
        compute_copy(range.compute_copy.data == nullptr ? nullptr : range.compute_copy.as<bfloat16>()),
        vectors(cuda::aligned(param, grad, compute_copy)) {}

  __device__ float scale() const { return grad_scale == nullptr ? 1.0F : static_cast<float>(*grad_scale); }

  // Calls body(first element, how many, whether they decay) for the elements of the calling thread.
  template <class Body>
  __device__ void for_each(Body body) const {
    for (int64_t chunk = blockIdx.x; chunk * kDecayChunk < n; chunk += gridDim.x) {
      const int64_t i = chunk * kDecayChunk + N * threadIdx.x;
      if (i < n) body(i, static_cast<int>(n - i < N ? n - i : N), decay[chunk] != 0);
    }
  }

  __device__ void put(int64_t i, const cuda::Floats<N>& values, int count) const {
    cuda::store(param + i, values, count, vectors);
    if (compute_copy != nullptr) cuda::store(compute_copy + i, values, count, vectors);
  }
};

struct Sgd {
  float momentum;
  float weight_decay;
  bool nesterov;
};

template <class G>
__global__ void sgd_kernel(Range<G> range, Sgd sgd, float* buffer, bool vectors) {
  cuda::begin_kernel();
  const float learning_rate = static_cast<float>(range.scalars->learning_rate);
  const float scale = range.scale();
  range.for_each([&](int64_t i, int count, bool decays) {
    auto param = cuda::load<N>(range.param + i, count, vectors);
    const auto grad = cuda::load<N>(range.grad + i, count, vectors);
    const float decay = decays ? sgd.weight_decay : 0.0F;
    cuda::Floats<N> velocity{};
    if (buffer != nullptr) velocity = cuda::load<N>(buffer + i, count, vectors);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float g = grad[k] * scale + decay * param[k];
      velocity[k] = sgd.momentum * velocity[k] + g;
      param[k] -= learning_rate * (sgd.nesterov ? g + sgd.momentum * velocity[k] : velocity[k]);
    }
    if (buffer != nullptr) cuda::store(buffer + i, velocity, count, vectors);
    range.put(i, param, count);
  });
}

struct AdamW {
  float log_beta1;
  float log_beta2;
  float weight1;  // 1 - beta1
  float beta2;
  float weight2;  // 1 - beta2
  float eps;
  float weight_decay;
};

template <class G>
__global__ void adamw_kernel(Range<G> range, AdamW adamw, float* exp_avg, float* exp_avg_sq, bool vectors) {
  cuda::begin_kernel();
  const float learning_rate = static_cast<float>(range.scalars->learning_rate);
  const float step = static_cast<float>(range.scalars->step);
  const float scale = range.scale();
  // 1 - beta^step: computed as written it would cancel in the first steps.
  const float step_size = learning_rate / -expm1f(step * adamw.log_beta1);
  const float root_scale = 1 / sqrtf(-expm1f(step * adamw.log_beta2));
  const float shrink = 1 - learning_rate * adamw.weight_decay;
  range.for_each([&](int64_t i, int count, bool decays) {
    auto param = cuda::load<N>(range.param + i, count, vectors);
    const auto grad = cuda::load<N>(range.grad + i, count, vectors);
    auto average = cuda::load<N>(exp_avg + i, count, vectors);
    auto average_sq = cuda::load<N>(exp_avg_sq + i, count, vectors);
    const float keep = decays ? shrink : 1.0F;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float g = grad[k] * scale;
      average[k] += adamw.weight1 * (g - average[k]);
      average_sq[k] = adamw.beta2 * average_sq[k] + adamw.weight2 * g * g;
      param[k] = keep * param[k] - step_size * average[k] / (sqrtf(average_sq[k]) * root_scale + adamw.eps);
    }
    cuda::store(exp_avg + i, average, count, vectors);
    cuda::store(exp_avg_sq + i, average_sq, count, vectors);
    range.put(i, param, count);
  });
}

}  // namespace

void cuda::sgd_step(const ExecContext& exec, const UpdateRange& range, View momentum_buffer,
                    const SgdHyperparameters& hyperparameters) {
  if (range.param.numel() == 0) return;
  float* const buffer = hyperparameters.momentum == 0 ? nullptr : momentum_buffer.as<float>();
  const Sgd sgd = {static_cast<float>(hyperparameters.momentum), static_cast<float>(hyperparameters.weight_decay),
                   hyperparameters.nesterov};
  with_float_type(range.grad.dtype, [&]<class G>(G) {
    const Range<G> flat(range);
    Launch(exec, blocks_for(flat.n, kDecayChunk))(sgd_kernel<G>, flat, sgd, buffer, flat.vectors && aligned(buffer));
  });
}

void cuda::adamw_step(const ExecContext& exec, const UpdateRange& range, View exp_avg, View exp_avg_sq,
                      const AdamWHyperparameters& hyperparameters) {
  if (range.param.numel() == 0) return;
  const AdamW adamw = {.log_beta1 = static_cast<float>(std::log(hyperparameters.beta1)),
                       .log_beta2 = static_cast<float>(std::log(hyperparameters.beta2)),
                       .weight1 = static_cast<float>(1 - hyperparameters.beta1),
                       .beta2 = static_cast<float>(hyperparameters.beta2),
                       .weight2 = static_cast<float>(1 - hyperparameters.beta2),
                       .eps = static_cast<float>(hyperparameters.eps),
                       .weight_decay = static_cast<float>(hyperparameters.weight_decay)};
  float* const average = exp_avg.as<float>();
  float* const average_sq = exp_avg_sq.as<float>();
  with_float_type(range.grad.dtype, [&]<class G>(G) {
    const Range<G> flat(range);
    Launch(exec, blocks_for(flat.n, kDecayChunk))(adamw_kernel<G>, flat, adamw, average, average_sq,
                                                  flat.vectors && aligned(average, average_sq));
  });
}

}  // namespace lockstep::kernels
