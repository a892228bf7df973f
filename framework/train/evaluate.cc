#include "framework/train/evaluate.h"

#include <memory>
#include <set>
#include <vector>

#include "framework/data/loader.h"
#include "framework/data/sampler.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/train/input.h"
#include "framework/train/made_up_batch.h"
#include "framework/train/plan_phase.h"

namespace lockstep {
namespace {

// Restores the mode also when evaluation throws.
class EvaluationMode {
 public:
  explicit EvaluationMode(Module& model) : model_(model), was_training_(model.training()) { model_.train(false); }
  ~EvaluationMode() { model_.train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  Module& model_;
  bool was_training_;
};

std::set<std::int64_t> batch_sizes(EvalSampler sampler) {
  std::set<std::int64_t> sizes;
  std::vector<std::int64_t> indices(static_cast<std::size_t>(sampler.batch_size()));
  while (const std::int64_t count = sampler.next(indices).count) sizes.insert(count);
  return sizes;
}

}  // namespace

EvalResult evaluate(Module& model, const LogitsFunction& logits, const Dataset& dataset, std::int64_t batch_size,
                    ProcessGroup& group) {
  const EvaluationMode mode(model);
  const EvalSampler sampler(dataset.size(), batch_size, group.rank(), group.size());
  if (group.size() > 1) {  // one rank may make its plans as it goes
    plan_together(group, [&] {
      for (const std::int64_t size : batch_sizes(sampler)) logits(zero_batch(size, dataset).samples);
    });
  }
  Loader loader(dataset, std::make_unique<EvalSampler>(sampler));
  double loss_sum = 0;
  double correct = 0;
  double count = 0;
  for (const Batch* batch = &loader.next(); batch->count > 0; batch = &loader.next()) {
    const DeviceBatch input = to_device(*batch, dataset.info());
    const Tensor output = logits(input.samples);
    correct += count_correct(output, input.labels).to_host<std::int32_t>()[0];
    loss_sum += softmax_cross_entropy(output, input.labels).item() * static_cast<double>(batch->count);
    count += static_cast<double>(batch->count);
  }
  const std::vector<double> mine{loss_sum, correct, count};
  const Tensor totals = Tensor::from_host(std::span(mine), {3});
  group.all_reduce(totals, ReduceOp::sum, "evaluation").wait();
  const std::vector<double> all = totals.to_host<double>();
  group.check();
  return {.loss = all[0] / all[2], .accuracy = all[1] / all[2], .samples = static_cast<std::int64_t>(all[2])};
}

}  // namespace lockstep
