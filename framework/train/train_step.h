// One optimizer step of synchronous data parallelism. The text of TrainStep::run is the order in which things happen;
// docs/data_parallel.md walks through it.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "framework/core/tensor.h"
#include "framework/distributed/bucketer.h"
#include "framework/distributed/process_group.h"
#include "framework/nn/module.h"
#include "framework/optim/gradient_norm.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/parameter_arena.h"

namespace lockstep {

// The samples of one rank in one micro-step, in the device's memory.
struct DeviceBatch {
  Tensor samples;
  Tensor labels;
  std::int64_t first = 0;  // place of sample 0 in the global batch: masks are keyed by it
};

struct TrainStepOptions {
  int accumulate = 1;      // micro-steps a step; gradients are reduced in the last one only
  double clip_norm = 0.0;  // 0: no clipping
  bool grad_norm = false;  // measure the norm also where nothing is clipped
  BucketerOptions buckets;
  BucketCaps caps;
};

struct StepResult {
  double loss = 0.0;       // mean over the global batch
  double grad_norm = 0.0;  // of the averaged gradient before clipping; 0 where not measured
};

class TrainStep {
 public:
  // A scalar: the mean loss over the batch's samples.
  using LossFunction = std::function<Tensor(const DeviceBatch&)>;
  using NextBatch = std::function<DeviceBatch()>;

  // model and group must outlive the step.
  TrainStep(Module& model, LossFunction loss, const OptimizerConfig& optimizer, ProcessGroup& group,
            const TrainStepOptions& options = {});
  // Waits for what is under way: the loss's memory belongs to the group until then.
  ~TrainStep();
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  // Lays out the arena in the order of a first forward pass of `batch`, makes the ranks equal and makes the optimizer.
  // run() does it by itself; call it where the state must exist before the first step, as to resume.
  void prepare(const DeviceBatch& batch);

  // One step over options.accumulate micro-batches taken from `next`, all of one size on every rank.
  StepResult run(const NextBatch& next, double learning_rate);

  ParameterArena& arena() { return *arena_; }
  Optimizer& optimizer() { return *optimizer_; }

 private:
  Tensor forward(const DeviceBatch& batch);
  void update(double learning_rate);

  Module& model_;
  LossFunction loss_function_;
  OptimizerConfig optimizer_config_;
  ProcessGroup& group_;
  TrainStepOptions options_;
  std::optional<ParameterArena> arena_;
  std::optional<Bucketer> bucketer_;
  std::optional<GradientNorm> gradient_norm_;
  std::unique_ptr<Optimizer> optimizer_;
  Work loss_reduced_;
  Tensor loss_;  // scalar: the mean over the global batch, summed up over micro-steps and ranks
};

}  // namespace lockstep
