#include "cli/workload.h"

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/nearest_name.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/train/made_up_batch.h"

namespace lockstep::cli {
namespace {

constexpr std::int64_t kLargestBatch = 1 << 24;  // far more than fits any memory

Model make(const std::string& model) {
  const ModelInput input = usual_input(model);
  return make_model(model, {.sample_shape = input.sample_shape, .classes = input.classes});
}

// Others on each rank.
DeviceBatch make_batch(const std::string& model, std::int64_t count, int rank, std::uint64_t seed) {
  const ModelInput input = usual_input(model);
  return random_batch({.sample_shape = input.sample_shape, .num_classes = input.classes}, count, rank * count,
                      seed * 1000 + static_cast<std::uint64_t>(rank));
}

TrainStep::LossFunction loss_of(const Model& model) {
  return
      [&model](const DeviceBatch& batch) { return softmax_cross_entropy(model.logits(batch.samples), batch.labels); };
}

}  // namespace

void check(const std::string& model, const WorkloadArguments& arguments) {
  expect_known("model", model, model_names());
  check(arguments.step);
  expect(arguments.batch_per_rank >= 1 && arguments.batch_per_rank <= kLargestBatch,
         "--batch-per-rank: expected from 1 to {}, got {}", kLargestBatch, arguments.batch_per_rank);
}

Workload::Workload(const std::string& model, const WorkloadArguments& arguments, int rank)
    : arguments_(arguments),
      model_(make(model)),
      batch_(make_batch(model, arguments.batch_per_rank, rank, arguments.seed)) {}

std::unique_ptr<TrainStep> Workload::make_step(ProcessGroup& group, bool timeline) const {
  TrainStepOptions options = step_options(arguments_.step);
  options.timeline = timeline;
  auto step = std::make_unique<TrainStep>(*model_.module, loss_of(model_), SgdConfig{.momentum = 0.9}, group, options);
  step->prepare(batch_);
  return step;
}

std::vector<std::int64_t> bucket_elements(const std::string& model, const BucketArguments& arguments) {
  Context cpu;
  const ContextScope scope(cpu);
  const Model built = make(model);
  std::vector<Parameter*> order;
  {
    Tape tape;
    order = tape.gradient_order(loss_of(built)(make_batch(model, 1, 0, 0)));
  }
  const ParameterArena arena(order, arguments.caps());
  std::vector<std::int64_t> counts;
  for (const Bucket& bucket : arena.buckets()) counts.push_back(bucket.range.count);
  return counts;
}

}  // namespace lockstep::cli
