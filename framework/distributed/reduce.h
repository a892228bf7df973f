// Element-wise reduction of host buffers, for the engines that leave the arithmetic to their caller.
#pragma once

#include <span>

#include "framework/distributed/process_group.h"

namespace lockstep {

// out[i] = op over all inputs' [i], taken in the order of `inputs`, for `count` elements of `dtype`. Sums of bf16 are
// accumulated in f32 and rounded once; integer sums wrap. `out` may be one of the inputs.
void reduce_elements(DType dtype, ReduceOp op, std::span<const void* const> inputs, void* out, std::int64_t count);

}  // namespace lockstep
