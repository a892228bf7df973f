// The classification loss, and the count behind accuracy.
#pragma once

#include "framework/core/tensor.h"

namespace lockstep {

// Mean over N of the cross-entropy of softmax(logits) with the labels, a scalar, f64 for logits of f64 and else f32;
// each target is 1 - label_smoothing at the label plus label_smoothing / V everywhere (Szegedy et al., 2016, as in
// PyTorch). The loss of no rows is 0, so that a rank without samples adds nothing. logits (N, V) f32, bf16 or f64,
// labels (N) i32.
//
// Saves the logits and one number a row; backward writes the gradient over the logits. So hand them over by std::move,
// and read them elsewhere (count_correct) before: the tape refuses an op that reads them too. Where another handle
// keeps their memory alive, as ReLU does with its output, the gradient gets memory of its own. Throws
// std::invalid_argument on shapes and types that do not fit, and, on a CPU, on a label outside [0, V).
Tensor softmax_cross_entropy(Tensor logits, const Tensor& labels, double label_smoothing = 0.0);

// Number of rows whose largest logit, the first of equals, is at the label: a scalar, i32, without gradient.
Tensor count_correct(const Tensor& logits, const Tensor& labels);

}  // namespace lockstep
