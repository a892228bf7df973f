// Initial values of parameters, drawn from the context's seed: the same for every rank, device and element type.
#pragma once

#include "framework/core/tensor.h"

namespace lockstep {

// New tensors of the context's master_dtype().
Tensor uniform(const Shape& shape, double low, double high);
Tensor normal(const Shape& shape, double mean, double std);
Tensor constant(const Shape& shape, double value);

// Uniform in +-1/sqrt(fan_in): what torch.nn.Linear and torch.nn.Conv2d use for weight and bias
// (kaiming_uniform with a = sqrt(5)).
Tensor fan_in_uniform(const Shape& shape, std::int64_t fan_in);

}  // namespace lockstep
