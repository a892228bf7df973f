// Rows of a table chosen by index.
#pragma once

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels {

// y[n] = table[indices[n]]. table (V, C) f32 or f64 (GPU: f32 or bf16), indices (N) i32, y (N, C).
// An index outside [0, V) throws std::invalid_argument on a CPU, and gives a row of NaN on a GPU.
using EmbeddingForward = void(const ExecContext& exec, ConstView table, ConstView indices, View y);

// dtable[indices[n]] += dy[n], for n in order. dy (N, C). Where the target is to be overwritten, all V rows are cleared
// first.
using EmbeddingBackward = void(const ExecContext& exec, ConstView dy, ConstView indices, GradView dtable);

namespace cpu {
EmbeddingForward embedding_forward;
EmbeddingBackward embedding_backward;
}  // namespace cpu
namespace cuda {
EmbeddingForward embedding_forward;
EmbeddingBackward embedding_backward;
}  // namespace cuda

}  // namespace lockstep::kernels
