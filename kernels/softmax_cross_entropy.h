// Softmax and cross-entropy in one: the probabilities are never stored.
#pragma once

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels {

// loss = mean over rows of -sum_v target_v log softmax(logits)_v, where target is 1 - label_smoothing at the label plus
// label_smoothing / V everywhere. logits (N, V) f32 or f64 (GPU: f32 or bf16), labels (N) i32, lse (N) and loss (one
// element) of statistics_dtype of the logits. lse gets log(sum(exp(row))), all that backward needs beside the logits.
// The loss of no rows is 0. A label outside [0, V) throws std::invalid_argument on a CPU, and makes the loss NaN on a
// GPU.
using SoftmaxCrossEntropyForward = void(const ExecContext& exec, ConstView logits, ConstView labels,
                                        double label_smoothing, View lse, View loss);

// gradient = (softmax(logits) - target) * dy / N, of the shape and type of the logits, whose memory it may be. dy: one
// element; the others as forward read and wrote them. A GPU reads logits and labels while the kernel before this may
// still run: forward lies between whoever wrote them and this.
using SoftmaxCrossEntropyBackward = void(const ExecContext& exec, ConstView dy, ConstView logits, ConstView labels,
                                         ConstView lse, double label_smoothing, View gradient);

// count = number of rows whose largest logit, the first of equals, is at the label. count: one element, i32.
using CountCorrect = void(const ExecContext& exec, ConstView logits, ConstView labels, View count);

namespace cpu {
SoftmaxCrossEntropyForward softmax_cross_entropy_forward;
SoftmaxCrossEntropyBackward softmax_cross_entropy_backward;
CountCorrect count_correct;
}  // namespace cpu
namespace cuda {
SoftmaxCrossEntropyForward softmax_cross_entropy_forward;
SoftmaxCrossEntropyBackward softmax_cross_entropy_backward;
CountCorrect count_correct;
}  // namespace cuda

}  // namespace lockstep::kernels
