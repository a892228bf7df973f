#include "framework/ops/softmax_cross_entropy.h"

#include <utility>

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "kernels/dispatch.h"
#include "kernels/softmax_cross_entropy.h"

namespace lockstep {
namespace {

void expect_logits_and_labels(const char* op, const Tensor& logits, const Tensor& labels) {
  expect(logits.shape().rank() == 2 && labels.shape() == Shape{logits.dim(0)},
         "{}: expected logits (N, V) and labels (N), got {} and {}", op, logits.shape(), labels.shape());
  expect(labels.dtype() == DType::i32, "{}: expected labels of type i32, got {}", op, dtype_name(labels.dtype()));
}

}  // namespace

Tensor softmax_cross_entropy(Tensor handed_over, const Tensor& labels, double label_smoothing) {
  // A parameter of a function may live until the end of the caller's expression, which may hold the call of backward.
  const Tensor logits = std::move(handed_over);
  expect_logits_and_labels("softmax_cross_entropy", logits, labels);
  expect(0 <= label_smoothing && label_smoothing <= 1,
         "softmax_cross_entropy: expected label smoothing in [0, 1], got {}", label_smoothing);
  Tensor lse = Tensor::empty({logits.dim(0)}, statistics_dtype(logits.dtype()));
  Tensor loss = Tensor::empty({}, statistics_dtype(logits.dtype()));
  LOCKSTEP_DISPATCH(softmax_cross_entropy_forward, context().exec(), logits, labels, label_smoothing, lse, loss);
  record_consuming("softmax_cross_entropy", logits, &loss,
                   [logits = logits.detach(), labels, lse, label_smoothing](Backward& backward) mutable {
                     const ConstView read = logits;
                     Tensor gradient =
                         logits.unique() ? std::move(logits) : Tensor::empty(logits.shape(), logits.dtype());
                     LOCKSTEP_DISPATCH(softmax_cross_entropy_backward, context().exec(), backward.dy(), read, labels,
                                       lse, label_smoothing, gradient);
                     backward.pass(0, std::move(gradient));
                   });
  return loss;
}

Tensor count_correct(const Tensor& logits, const Tensor& labels) {
  expect_logits_and_labels("count_correct", logits, labels);
  Tensor count = Tensor::empty({}, DType::i32);
  LOCKSTEP_DISPATCH(count_correct, context().exec(), logits, labels, count);
  return count;
}

}  // namespace lockstep
