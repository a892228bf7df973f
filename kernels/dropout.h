// Dropout. Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", JMLR 2014.
#pragma once

#include <cstdint>

#include "kernels/exec_context.h"
#include "kernels/random.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels {

// y (+)= x * keep / (1 - p), keep drawn for each element with probability 1 - p. x (B, ...), B samples; f32 or f64, on
// a GPU f32 or bf16. The draw of an element is a function of (seed, step, op, global index of the sample, element
// within the sample), read from `state` (in the memory of the device) when the kernel runs. So dropout is its own
// backward: called with dy for x and the same state, it applies the same mask.
using Dropout = void(const ExecContext& exec, ConstView x, double p, const RandomState* state, std::uint32_t op,
                     GradView y);

namespace cpu {
Dropout dropout;
}  // namespace cpu
namespace cuda {
Dropout dropout;
}  // namespace cuda

}  // namespace lockstep::kernels
