#pragma once

#include "framework/core/tensor.h"

namespace lockstep {

// Rows of a table chosen by index. table (V, C) f32, bf16 or f64, indices (...) i32, result (..., C). Saves the
// indices. Throws std::invalid_argument on shapes and types that do not fit, and, on a CPU, on an index outside [0, V).
Tensor embedding(const Tensor& table, const Tensor& indices);

}  // namespace lockstep
