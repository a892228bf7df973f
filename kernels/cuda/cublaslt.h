// Matrix products by cuBLASLt, row-major.
#pragma once

#include <cstdint>

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels::cuda {

// A factor as it lies in memory, and whether its transpose is meant.
struct Factor {
  const void* data = nullptr;
  DType dtype = DType::f32;
  bool transposed = false;
};

// What is done on the way, while numbers are at hand.
enum class Epilogue : std::uint8_t {
  none,
  bias,           // out[i][j] += bias[j]
  bias_relu,      // and then max(out[i][j], 0)
  bias_gradient,  // bias[i] = sum over k of a[i][k]: written, not read
};

// out (rows x columns) = a (rows x depth) b (depth x columns), or += that. The factors are both f32 or both bf16, the
// result is f32 or bf16; sums are f32. None of the extents is 0.
struct Matmul {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  Factor a, b;
  View out;
  bool accumulate = false;
  Epilogue epilogue = Epilogue::none;
  void* bias = nullptr;  // of the type of out
};

// False where cuBLASLt has no algorithm for it: nothing was done.
bool matmul(const ExecContext& exec, const Matmul& product);

}  // namespace lockstep::kernels::cuda
