// Parameter updates over a flat range of the parameter arena: one call serves the whole arena, a bucket or a shard.
#pragma once

#include <cstdint>

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels {

// What changes from step to step. Lives in the memory of the device, so that a captured step reads new values.
struct StepScalars {
  double learning_rate = 0;
  std::int64_t step = 0;  // 1 in the first update

  friend bool operator==(const StepScalars&, const StepScalars&) = default;
};

// Elements that share one decay byte. A range starts on a multiple of it.
inline constexpr std::int64_t kDecayChunk = 1024;

// n elements of the arena and what an update of them reads. The padding between parameters is updated like the rest, so
// its gradient is to be zero.
struct UpdateRange {
  View param;                            // f32 or f64; f32 on a GPU
  ConstView grad;                        // of the type of param; on a GPU f32 or bf16
  ConstView decay;                       // u8, one for each chunk: 1 where weight decay applies
  const double* grad_scale = nullptr;    // device memory; multiplies the gradient as it is read; null: 1
  const StepScalars* scalars = nullptr;  // device memory
  View compute_copy;                     // GPU: gets the new values in bf16; null: not wanted
};

struct SgdHyperparameters {
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

// Stochastic gradient descent as in torch.optim.SGD without dampening; the decay is added to the gradient.
//   g = grad * grad_scale + weight_decay * param;  buffer = momentum * buffer + g
//   param -= learning_rate * (nesterov ? g + momentum * buffer : buffer)
// The buffer has the type of param and starts at zero; where momentum is 0 it is not touched and may be null.
using SgdStep = void(const ExecContext& exec, const UpdateRange& range, View momentum_buffer,
                     const SgdHyperparameters& hyperparameters);

struct AdamWHyperparameters {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

// Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, in the order of torch.optim.AdamW.
//   param *= 1 - learning_rate * weight_decay;  g = grad * grad_scale
//   exp_avg += (1 - beta1) * (g - exp_avg);  exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g^2
//   param -= learning_rate / (1 - beta1^step) * exp_avg / (sqrt(exp_avg_sq) / sqrt(1 - beta2^step) + eps)
// Both moments have the type of param and start at zero.
using AdamWStep = void(const ExecContext& exec, const UpdateRange& range, View exp_avg, View exp_avg_sq,
                       const AdamWHyperparameters& hyperparameters);

namespace cpu {
SgdStep sgd_step;
AdamWStep adamw_step;
}  // namespace cpu
namespace cuda {
SgdStep sgd_step;
AdamWStep adamw_step;
}  // namespace cuda

}  // namespace lockstep::kernels
