#include "framework/ops/embedding.h"

#include <vector>

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "kernels/dispatch.h"
#include "kernels/embedding.h"

namespace lockstep {

Tensor embedding(const Tensor& table, const Tensor& indices) {
  expect(table.shape().rank() == 2, "embedding: expected a table (V, C), got {}", table.shape());
  expect(indices.dtype() == DType::i32, "embedding: expected indices of type i32, got {}", dtype_name(indices.dtype()));
  std::vector<std::int64_t> extents(indices.shape().span().begin(), indices.shape().span().end());
  extents.push_back(table.dim(1));
  Tensor y = Tensor::empty(Shape(extents), table.dtype());
  LOCKSTEP_DISPATCH(embedding_forward, context().exec(), table, indices, y);
  record("embedding", {&table}, {&y}, [shape = table.shape(), dtype = table.dtype(), indices](Backward& backward) {
    LOCKSTEP_DISPATCH(embedding_backward, context().exec(), backward.dy(), indices, backward.target(0, shape, dtype));
  });
  return y;
}

}  // namespace lockstep
