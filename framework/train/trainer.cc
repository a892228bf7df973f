#include "framework/train/trainer.h"

#include <chrono>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "framework/core/error.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/train/checkpoint.h"
#include "framework/train/input.h"
#include "framework/train/restore.h"

namespace lockstep {

Trainer::Trainer(Module& model, LogitsFunction logits, const Dataset& train, const Dataset* validation,
                 ProcessGroup& group, const TrainerOptions& options)
    : model_(model),
      logits_(std::move(logits)),
      train_(train),
      validation_(validation),
      group_(group),
      options_(options) {
  options_.split.world_size = group.size();
  options_.step.accumulate = static_cast<int>(options.split.accumulate);
  auto loss = [this](const DeviceBatch& batch) {
    return softmax_cross_entropy(logits_(batch.samples), batch.labels, options_.label_smoothing);
  };
  step_ = std::make_unique<TrainStep>(model, loss, options_.optimizer, group, options_.step);
  step_->prepare(zero_batch(options_.split.batch_per_rank, train));
  if (!options_.resume_dir.empty()) step_->optimizer().set_steps(restore(options_.resume_dir, state(), group));

  auto sampler =
      std::make_unique<TrainSampler>(train.size(), options_.split, group.rank(),
                                     TrainSamplerOptions{.seed = options_.seed, .short_batch = options_.short_batch});
  steps_per_epoch_ = sampler->steps_per_epoch();
  sampler->seek(sampler->position_of(steps_done()));
  loader_ = std::make_unique<Loader>(train, std::move(sampler));
  if (group_.rank() == 0 && !options_.run_dir.empty()) {
    metrics_ = std::make_unique<MetricsFile>(options_.run_dir / "metrics.jsonl", steps_done());
  }
}

std::optional<EvalResult> Trainer::run(const OnStep& on_step) {
  using Clock = std::chrono::steady_clock;
  std::optional<EvalResult> evaluation;
  const auto next = [this] { return to_device(loader_->next(), train_.info()); };
  while (steps_done() < options_.steps) {
    const Clock::time_point start = Clock::now();
    StepMetrics metrics;
    metrics.epoch = steps_done() / steps_per_epoch_;
    metrics.learning_rate = options_.schedule.learning_rate(steps_done());
    const StepResult result = step_->run(next, metrics.learning_rate);
    metrics.step = steps_done();
    metrics.loss = result.loss;
    metrics.grad_norm = result.grad_norm;
    metrics.step_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    metrics.samples_per_s = static_cast<double>(options_.split.global_batch()) / metrics.step_ms * 1e3;
    if (!std::isfinite(metrics.loss)) {
      throw Error(fmt::format("the loss became {} in step {}: try a smaller --lr, --clip or --warmup", metrics.loss,
                              metrics.step));
    }
    if (validation_ != nullptr && evaluates_after(metrics.step)) {
      evaluation = evaluate(model_, logits_, *validation_, options_.split.batch_per_rank, group_);
      metrics.val_loss = evaluation->loss;
      metrics.val_accuracy = evaluation->accuracy;
    }
    if (metrics_) metrics_->write(metrics);
    const bool last = metrics.step == options_.steps;
    if (last || (options_.checkpoint_every > 0 && metrics.step % options_.checkpoint_every == 0)) save();
    if (on_step) on_step(metrics);
  }
  // A run that was complete when it was resumed has a result too.
  if (!evaluation && validation_ != nullptr) {
    evaluation = evaluate(model_, logits_, *validation_, options_.split.batch_per_rank, group_);
  }
  return evaluation;
}

bool Trainer::evaluates_after(std::int64_t steps_done) const {
  const std::int64_t every = options_.eval_every > 0 ? options_.eval_every : steps_per_epoch_;
  return steps_done == options_.steps || steps_done % every == 0;
}

void Trainer::save() const {
  if (group_.rank() != 0 || options_.run_dir.empty()) return;
  save_checkpoint(options_.run_dir,
                  {.step = steps_done(),
                   .seed = options_.seed,
                   .model = options_.model_name,
                   .data = train_.info().name,
                   .data_size = train_.size(),
                   .global_batch = options_.split.global_batch(),
                   .world_size = group_.size()},
                  state());
}

std::vector<NamedTensor> Trainer::state() const {
  std::vector<NamedTensor> tensors = model_tensors(model_);
  for (NamedTensor& moment : optimizer_tensors(step_->arena(), step_->optimizer()))
    tensors.push_back(std::move(moment));
  return tensors;
}

}  // namespace lockstep
