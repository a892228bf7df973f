// A whole training run of a classifier: steps, evaluation, checkpoints, metrics.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/batch_split.h"
#include "framework/data/dataset.h"
#include "framework/data/loader.h"
#include "framework/data/sampler.h"
#include "framework/distributed/process_group.h"
#include "framework/nn/module.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/schedule.h"
#include "framework/train/checkpoint.h"
#include "framework/train/evaluate.h"
#include "framework/train/input.h"
#include "framework/train/metrics.h"
#include "framework/train/train_step.h"

namespace lockstep {

struct TrainerOptions {
  std::string model_name;  // for the checkpoints
  BatchSplit split;        // its world_size is the group's
  std::int64_t steps = 0;  // since the start of training, also after a resume
  OptimizerConfig optimizer;
  Schedule schedule;
  TrainStepOptions step;  // its `accumulate` is taken from `split`
  double label_smoothing = 0.0;
  std::uint64_t seed = 0;  // of the order of the samples
  ShortBatch short_batch = ShortBatch::drop;
  std::int64_t eval_every = 0;        // steps; 0: at the end of each epoch. The last step is always evaluated
  std::int64_t checkpoint_every = 0;  // steps; 0: after the last step only
  std::filesystem::path run_dir;      // of rank 0: where metrics.jsonl and checkpoints/ go; empty: nothing is written
  std::filesystem::path resume_dir;   // a run directory to continue; empty: start anew
};

class Trainer {
 public:
  // Called on every rank after each step.
  using OnStep = std::function<void(const StepMetrics&)>;

  // Makes the ranks equal, from rank 0's checkpoint where one is resumed. Everything referred to must outlive the
  // trainer. validation may be null: then nothing is evaluated.
  Trainer(Module& model, LogitsFunction logits, const Dataset& train, const Dataset* validation, ProcessGroup& group,
          const TrainerOptions& options);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Trains until options.steps are done and returns the last evaluation. Throws lockstep::Error on every rank where the
  // loss is no longer a finite number.
  std::optional<EvalResult> run(const OnStep& on_step = {});

  std::int64_t steps_done() const { return step_->optimizer().steps(); }
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  // What this rank gives to the all-reduces of gradients in a step.
  std::int64_t reduced_bytes_per_step() const { return step_->reduced_bytes(); }

 private:
  StepMetrics metrics_of(const StepReport& report);
  bool evaluates_after(std::int64_t steps_done) const;
  bool saves_after(std::int64_t steps_done) const;
  void save() const;
  std::vector<NamedTensor> state() const;

  Module& model_;
  LogitsFunction logits_;
  const Dataset& train_;
  const Dataset* validation_;
  ProcessGroup& group_;
  TrainerOptions options_;
  std::int64_t steps_per_epoch_ = 0;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<TrainInput> input_;
  std::unique_ptr<TrainStep> step_;
  std::chrono::steady_clock::time_point last_result_;
  std::unique_ptr<MetricsFile> metrics_;  // rank 0
};

}  // namespace lockstep
