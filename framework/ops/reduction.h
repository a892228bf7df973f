// Reductions of all elements to a scalar (rank 0) of the same type; x of any shape, f32, bf16 or f64. The result does
// not depend on the number of threads.
#pragma once

#include "framework/core/tensor.h"

namespace lockstep {

// The sum of no elements is 0.
Tensor sum(const Tensor& x);
// The mean of no elements is NaN.
Tensor mean(const Tensor& x);

}  // namespace lockstep
