#include "framework/train/train_step.h"

#include <utility>

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/distributed/data_parallel.h"
#include "kernels/dispatch.h"
#include "kernels/elementwise.h"

namespace lockstep {

TrainStep::TrainStep(Module& model, LossFunction loss, const OptimizerConfig& optimizer, ProcessGroup& group,
                     const TrainStepOptions& options)
    : model_(model), loss_function_(std::move(loss)), optimizer_config_(optimizer), group_(group), options_(options) {
  expect(options.accumulate >= 1, "train step: expected at least 1 micro-step, got {}", options.accumulate);
}

TrainStep::~TrainStep() {
  try {
    loss_reduced_.wait();
  } catch (const std::exception&) {
    // run() has told; here it only matters that it ended.
  }
}

Tensor TrainStep::forward(const DeviceBatch& batch) {
  context().random.sample_offset = batch.first;
  return loss_function_(batch);
}

void TrainStep::prepare(const DeviceBatch& batch) {
  std::vector<Parameter*> order;
  {
    Tape tape;
    order = tape.gradient_order(forward(batch));
  }
  arena_.emplace(make_replicas(model_, order, group_, options_.caps));
  bucketer_.emplace(*arena_, group_, options_.buckets);
  if (options_.clip_norm > 0 || options_.grad_norm) gradient_norm_.emplace(*arena_, options_.clip_norm);
  optimizer_ = make_optimizer(optimizer_config_, *arena_);
  loss_ = Tensor::zeros({}, context().dtype());
}

StepResult TrainStep::run(const NextBatch& next, double learning_rate) {
  DeviceBatch batch = next();
  if (!arena_) prepare(batch);
  arena_->begin_step();
  context().random.step = static_cast<std::uint64_t>(optimizer_->steps());

  // Collectives sum, so the average is in the seed of backward.
  const double seed = 1.0 / (options_.accumulate * group_.size());
  for (int micro = 0; micro < options_.accumulate; ++micro) {
    if (micro > 0) batch = next();
    const bool last = micro + 1 == options_.accumulate;
    Tape tape;
    const Tensor loss = forward(batch);
    LOCKSTEP_DISPATCH(scale, context().exec(), loss, seed, GradView{loss_, micro > 0});
    if (last) loss_reduced_ = group_.all_reduce(loss_, ReduceOp::sum, "loss");  // hidden behind backward
    tape.backward(loss, seed, last ? &*bucketer_ : nullptr);
  }
  bucketer_->flush();
  update(learning_rate);

  loss_reduced_.wait();
  StepResult result;
  result.loss = loss_.item();
  if (gradient_norm_) result.grad_norm = gradient_norm_->norm();
  group_.check();  // the device has been waited for: what a failed collective left is not taken for a result
  return result;
}

void TrainStep::update(double learning_rate) {
  optimizer_->begin_step(learning_rate);
  const auto buckets = arena_->buckets();
  if (options_.clip_norm > 0) {
    // The clip factor needs every gradient: one update follows the last bucket.
    for (std::size_t i = 0; i < buckets.size(); ++i) bucketer_->wait(i);
    gradient_norm_->measure();
    optimizer_->update(arena_->whole(), gradient_norm_->clip_factor());
    return;
  }
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    bucketer_->wait(i);
    optimizer_->update(buckets[i].range);
  }
  if (gradient_norm_) gradient_norm_->measure();
}

}  // namespace lockstep
