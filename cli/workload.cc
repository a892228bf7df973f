#include "cli/workload.h"

#include <span>

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/nearest_name.h"
#include "framework/data/counter_random.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/train/input.h"

namespace lockstep::cli {
namespace {

Model make(const std::string& model) {
  const ModelInput input = usual_input(model);
  return make_model(model, {.sample_shape = input.sample_shape, .classes = input.classes});
}

// Random pixels and labels, others on each rank.
DeviceBatch make_batch(const ModelInput& input, std::int64_t count, int rank, std::uint64_t seed) {
  const Shape& image = input.sample_shape;
  const Shape shape{count, image[0], image[1], image[2]};
  const std::uint64_t key = seed * 1000 + static_cast<std::uint64_t>(rank);
  std::uint64_t counter = 0;
  const auto classes = static_cast<std::uint64_t>(input.classes);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(count));
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(shape.numel()));
  for (std::int32_t& label : labels) label = static_cast<std::int32_t>(random_bits(key, counter++) % classes);
  for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(random_bits(key, counter++));
  return to_device({.samples = ConstView(pixels.data(), DType::u8, shape),
                    .labels = ConstView(labels.data(), DType::i32, {count}),
                    .count = count,
                    .first = rank * count},
                   {.sample_shape = image});
}

TrainStep::LossFunction loss_of(const Model& model) {
  return
      [&model](const DeviceBatch& batch) { return softmax_cross_entropy(model.logits(batch.samples), batch.labels); };
}

}  // namespace

void check(const std::string& model, const WorkloadArguments& arguments) {
  expect_known("model", model, model_names());
  expect_known("overlap mode", arguments.overlap, {"on", "off", "naive"});
  expect_known("--graph", arguments.graph, {"on", "off"});
  expect_known("--grad-dtype", arguments.grad_dtype, {"f32", "bf16"});
  expect(arguments.batch_per_rank >= 1, "--batch-per-rank: expected at least 1, got {}", arguments.batch_per_rank);
  expect(arguments.buckets.bucket_cap_mib > 0 && arguments.buckets.first_bucket_mib > 0,
         "--bucket-cap-mib, --first-bucket-mib: expected more than 0, got {} and {}", arguments.buckets.bucket_cap_mib,
         arguments.buckets.first_bucket_mib);
}

Workload::Workload(const std::string& model, const WorkloadArguments& arguments, int rank)
    : arguments_(arguments),
      model_(make(model)),
      batch_(make_batch(usual_input(model), arguments.batch_per_rank, rank, arguments.seed)) {}

std::unique_ptr<TrainStep> Workload::make_step(ProcessGroup& group, bool timeline) const {
  TrainStepOptions options{.graph = arguments_.graph == "on", .timeline = timeline, .caps = arguments_.buckets.caps()};
  options.buckets.overlap = arguments_.overlap == "naive" ? Overlap::naive
                            : arguments_.overlap == "off" ? Overlap::off
                                                          : Overlap::on;
  if (arguments_.grad_dtype == "bf16") options.grad_dtype = DType::bf16;
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
    order = tape.gradient_order(loss_of(built)(make_batch(usual_input(model), 1, 0, 0)));
  }
  const ParameterArena arena(order, arguments.caps());
  std::vector<std::int64_t> counts;
  for (const Bucket& bucket : arena.buckets()) counts.push_back(bucket.range.count);
  return counts;
}

}  // namespace lockstep::cli
