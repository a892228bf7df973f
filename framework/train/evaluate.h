// Loss and accuracy of a classifier over a data set.
#pragma once

#include <cstdint>
#include <functional>

#include "framework/core/tensor.h"
#include "framework/data/dataset.h"
#include "framework/distributed/process_group.h"
#include "framework/nn/module.h"

namespace lockstep {

// samples (N, ...) -> logits (N, classes)
using LogitsFunction = std::function<Tensor(const Tensor& samples)>;

struct EvalResult {
  double loss = 0.0;      // mean cross-entropy
  double accuracy = 0.0;  // share of samples whose largest logit is the label's
  std::int64_t samples = 0;
};

// Every sample counts once, on any number of ranks; all ranks get the same result. Runs in evaluation mode and leaves
// the model in the mode it was in.
EvalResult evaluate(Module& model, const LogitsFunction& logits, const Dataset& dataset, std::int64_t batch_size,
                    ProcessGroup& group);

}  // namespace lockstep
