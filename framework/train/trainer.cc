#include "framework/train/trainer.h"

#include <chrono>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "framework/core/error.h"
#include "framework/distributed/agreement.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/train/checkpoint.h"
#include "framework/train/made_up_batch.h"
#include "framework/train/plan_phase.h"
#include "framework/train/restore.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kPlanFile = "plans.txt";  // which algorithms a GPU uses; read again on resume

}  // namespace

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
  if (!options_.resume_dir.empty()) use_plans(options_.resume_dir / kPlanFile);
  const DeviceBatch& batch = step_->prepare(zero_batch(options_.split.batch_per_rank, train));
  if (!options_.resume_dir.empty()) {
    const auto moments = optimizer_tensors(step_->arena(), step_->optimizer());
    step_->optimizer().set_steps(restore(options_.resume_dir, model, moments, group));
  }

  auto sampler =
      std::make_unique<TrainSampler>(train.size(), options_.split, group.rank(),
                                     TrainSamplerOptions{.seed = options_.seed, .short_batch = options_.short_batch});
  steps_per_epoch_ = sampler->steps_per_epoch();
  sampler->seek(sampler->position_of(steps_done()));
  loader_ = std::make_unique<Loader>(train, std::move(sampler));
  input_ = std::make_unique<TrainInput>(train, *loader_, batch);
  if (group_.rank() == 0 && !options_.run_dir.empty()) {
    metrics_ = std::make_unique<MetricsFile>(options_.run_dir / "metrics.jsonl", steps_done());
    save_plans(options_.run_dir / kPlanFile);
  }
}

std::optional<EvalResult> Trainer::run(const OnStep& on_step) {
  std::optional<EvalResult> evaluation;
  last_result_ = Clock::now();
  while (steps_done() < options_.steps) {
    const std::int64_t step = steps_done() + 1;
    const bool evaluates = validation_ != nullptr && evaluates_after(step);
    const bool stops = evaluates || saves_after(step);
    const auto on_result = [&](const StepReport& report) {
      StepMetrics metrics = metrics_of(report);
      if (evaluates && metrics.step == step) {
        evaluation = evaluate(model_, logits_, *validation_, options_.split.batch_per_rank, group_);
        metrics.val_loss = evaluation->loss;
        metrics.val_accuracy = evaluation->accuracy;
      }
      if (metrics_) metrics_->write(metrics);
      if (saves_after(metrics.step)) save();
      if (on_step) on_step(metrics);
    };
    step_->advance([this] { return input_->next(); }, options_.schedule.learning_rate(steps_done()), stops, on_result);
    if (stops) last_result_ = Clock::now();
  }
  // A run that was complete when it was resumed has a result too.
  if (!evaluation && validation_ != nullptr) {
    evaluation = evaluate(model_, logits_, *validation_, options_.split.batch_per_rank, group_);
  }
  return evaluation;
}

// Of a step whose result has just come.
StepMetrics Trainer::metrics_of(const StepReport& report) {
  StepMetrics metrics;
  metrics.step = report.step;
  metrics.epoch = (report.step - 1) / steps_per_epoch_;
  metrics.learning_rate = options_.schedule.learning_rate(report.step - 1);
  metrics.loss = report.loss;
  metrics.grad_norm = report.grad_norm;
  const Clock::time_point now = Clock::now();
  metrics.step_ms = std::chrono::duration<double, std::milli>(now - std::exchange(last_result_, now)).count();
  metrics.samples_per_s = static_cast<double>(options_.split.global_batch()) / metrics.step_ms * 1e3;
  if (!std::isfinite(metrics.loss)) {
    throw Error(fmt::format("the loss became {} in step {}: try a smaller --lr, --clip or --warmup", metrics.loss,
                            metrics.step));
  }
  return metrics;
}

bool Trainer::saves_after(std::int64_t steps_done) const {
  return steps_done == options_.steps || (options_.checkpoint_every > 0 && steps_done % options_.checkpoint_every == 0);
}

bool Trainer::evaluates_after(std::int64_t steps_done) const {
  const std::int64_t every = options_.eval_every > 0 ? options_.eval_every : steps_per_epoch_;
  return steps_done == options_.steps || steps_done % every == 0;
}

// All ranks wait for it, so that a failure is told by each.
void Trainer::save() const {
  from_rank_0(group_, "checkpoint", [this] {
    if (options_.run_dir.empty()) return "";
    save_checkpoint(options_.run_dir,
                    {.step = steps_done(),
                     .seed = options_.seed,
                     .model = options_.model_name,
                     .data = train_.info().name,
                     .data_size = train_.size(),
                     .global_batch = options_.split.global_batch(),
                     .world_size = group_.size()},
                    state());
    return "";
  });
}

std::vector<NamedTensor> Trainer::state() const {
  std::vector<NamedTensor> tensors = model_tensors(model_);
  for (NamedTensor& moment : optimizer_tensors(step_->arena(), step_->optimizer()))
    tensors.push_back(std::move(moment));
  return tensors;
}

}  // namespace lockstep
