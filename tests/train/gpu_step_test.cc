// The step on a GPU: captured and enqueued, on streams that run at any pace, it is the same step.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "framework/autograd/tape.h"
#include "framework/core/allocator.h"
#include "framework/core/context.h"
#include "framework/core/device_copy.h"
#include "framework/core/error.h"
#include "framework/core/gpu.h"
#include "framework/data/synthetic.h"
#include "framework/distributed/local_group.h"
#include "framework/nn/layers.h"
#include "framework/ops/linear.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/train/evaluate.h"
#include "framework/train/input.h"
#include "framework/train/made_up_batch.h"
#include "framework/train/train_step.h"
#include "models/lenet.h"
#include "models/mlp.h"
#include "tests/support/gpu_delay.h"
#include "tests/support/gpus.h"
#include "tests/support/random.h"
#include "tests/support/seed.h"
#include "tests/train/timeline_order.h"

// The linker sends the framework's calls here (--wrap).
namespace {

std::atomic<int> waits = 0;        // of the host for the device
std::atomic<int> allocations = 0;  // of device or pinned memory

}  // namespace

#define WRAP(name, counter, parameters, arguments)  \
  extern "C" cudaError_t __real_##name parameters;  \
  extern "C" cudaError_t __wrap_##name parameters;  \
  extern "C" cudaError_t __wrap_##name parameters { \
    ++(counter);                                    \
    return __real_##name arguments;                 \
  }

WRAP(cudaStreamSynchronize, waits, (cudaStream_t stream), (stream))
WRAP(cudaEventSynchronize, waits, (cudaEvent_t event), (event))
WRAP(cudaDeviceSynchronize, waits, (), ())
WRAP(cudaMalloc, allocations, (void** address, std::size_t bytes), (address, bytes))
WRAP(cudaMallocHost, allocations, (void** address, std::size_t bytes), (address, bytes))
WRAP(cudaFree, allocations, (void* address), (address))

namespace lockstep {
namespace {

constexpr std::int64_t kBatch = 32;
constexpr std::int64_t kClasses = 10;

// More than a bucket, and large enough for buckets to be finished beside backward.
std::unique_ptr<Module> large_mlp(TrainStep::LossFunction& loss) {
  auto model = std::make_unique<Mlp>(MlpConfig{.hidden = {2048, 2048}, .dropout = 0.2});
  loss = [net = model.get()](const DeviceBatch& batch) {
    return softmax_cross_entropy(net->forward(batch.samples), batch.labels);
  };
  return model;
}

std::unique_ptr<Module> lenet(TrainStep::LossFunction& loss) {
  auto model = std::make_unique<LeNet>(LeNetConfig{.dropout = 0.1});
  loss = [net = model.get()](const DeviceBatch& batch) {
    return softmax_cross_entropy(net->forward(batch.samples), batch.labels);
  };
  return model;
}

// Its backward waits.
Tensor slow_in_backward(const Tensor& x) {
  Tensor y = x.detach();
  record("slow_in_backward", {&x}, {&y}, [](Backward& backward) {
    testing::enqueue_delay(context().exec().stream, 2000);
    backward.pass(0, backward.dy());
  });
  return y;
}

// Reads a weight detached before the layer that trains it: backward still reads it when its gradient is complete.
class DetachedReader : public Module {
 public:
  DetachedReader() : in_(28 * 28, kWidth), shared_(kWidth, kWidth), out_(kWidth, kClasses) {
    register_module("in", in_);
    register_module("shared", shared_);
    register_module("out", out_);
  }
  Tensor forward(const Tensor& x) {
    const Tensor h = in_.forward(x.reshape({x.dim(0), 28 * 28}));
    const Tensor mixed = linear(h, shared_.parameters().front()->value.detach());
    return out_.forward(shared_.forward(slow_in_backward(mixed)));
  }

 private:
  static constexpr std::int64_t kWidth = 2048;
  Linear in_, shared_, out_;
};

std::unique_ptr<Module> detached_reader(TrainStep::LossFunction& loss) {
  auto model = std::make_unique<DetachedReader>();
  loss = [net = model.get()](const DeviceBatch& batch) {
    return softmax_cross_entropy(net->forward(batch.samples), batch.labels);
  };
  return model;
}

using MakeModel = std::unique_ptr<Module> (*)(TrainStep::LossFunction&);

DeviceBatch batch_of(std::uint64_t number, std::int64_t first, std::int64_t count = kBatch) {
  const Shape shape = {count, 28, 28, 1};
  const auto samples = testing::random_values<float>(shape.numel(), 0, 1, 2 * number);
  const auto labels = testing::random_indices(count, kClasses, 2 * number + 1);
  return {.samples = Tensor::from_host(std::span<const float>(samples), shape),
          .labels = Tensor::from_host(std::span<const std::int32_t>(labels), {count}),
          .first = first};
}

DeviceBatch half_of(const DeviceBatch& batch) {
  return {.samples = batch.samples.slice(0, kBatch / 2), .labels = batch.labels.slice(0, kBatch / 2)};
}

// One rank that trains LeNet.
struct LenetOnGpu {
  Context context{ContextOptions{.device = DeviceType::cuda}};
  ContextScope scope{context};
  std::vector<std::unique_ptr<ProcessGroup>> groups = make_local_groups(1);
  TrainStep::LossFunction loss;
  std::unique_ptr<Module> model = lenet(loss);
  TrainStep step;

  explicit LenetOnGpu(const SgdConfig& config = {}, const TrainStepOptions& options = {})
      : step(*model, loss, config, *groups.front(), options) {}
};

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> parameters;

  bool operator==(const Outcome&) const = default;
};

// So many steps on three batches that stay in memory, in turn; the same in every call.
Outcome train(MakeModel make, ProcessGroup& group, const OptimizerConfig& optimizer, const TrainStepOptions& options,
              int steps) {
  Context context(testing::gpu_options(group.rank(), /*deterministic=*/true));
  const ContextScope scope(context);
  context.random.seed = 11;
  TrainStep::LossFunction loss;
  const std::unique_ptr<Module> model = make(loss);
  const double learning_rate = std::holds_alternative<AdamWConfig>(optimizer) ? 1e-3 : 0.05;
  TrainStep step(*model, loss, optimizer, group, options);
  std::vector<DeviceBatch> batches;
  for (int i = 0; i < 3; ++i) {
    const int number = i * group.size() + group.rank();
    batches.push_back(batch_of(static_cast<std::uint64_t>(number), number * kBatch));
  }
  std::size_t micro_step = 0;
  const auto next = [&] { return batches[micro_step++ % batches.size()]; };
  Outcome outcome;
  const auto take = [&] {
    const StepReport report = step.result();
    outcome.losses.push_back(report.loss);
    outcome.norms.push_back(report.grad_norm);
  };
  for (int i = 0; i < steps; ++i) {
    step.enqueue(next, learning_rate);
    if (step.pending() == StepReports::kSlots) take();
  }
  while (step.pending() > 0) take();
  EXPECT_EQ(step.captured(), options.graph && steps > 0);
  outcome.parameters = step.arena().values().to_host<float>();
  return outcome;
}

void expect_captured_equals_enqueued(ProcessGroup& group) {
  for (const MakeModel make : {large_mlp, lenet}) {
    for (int accumulate = 1; accumulate <= 4; ++accumulate) {
      for (const double clip : {0.0, 0.5}) {
        TrainStepOptions options{.accumulate = accumulate, .clip_norm = clip, .grad_norm = true, .graph = false};
        const Outcome enqueued = train(make, group, AdamWConfig{}, options, 6);
        options.graph = true;
        const Outcome captured = train(make, group, AdamWConfig{}, options, 6);
        EXPECT_TRUE(enqueued == captured) << "accumulate " << accumulate << ", clip " << clip << ": losses "
                                          << enqueued.losses.back() << " and " << captured.losses.back();
        EXPECT_NEAR(captured.losses.front(), std::log(kClasses), 0.3);  // nothing is learned yet
        EXPECT_NE(captured.losses.back(), captured.losses.front());
        EXPECT_GT(captured.norms.back(), 0.0);
      }
    }
  }
}

TEST(Gpu, CapturedStepsOfTwoRanksHaveTheBitsOfEnqueuedOnes) {
  SKIP_WITHOUT_GPUS(2);
  EXPECT_EQ(testing::run_gpu_world(2, expect_captured_equals_enqueued), (std::vector<int>{0, 0}));
}

// Every place where one stream waits for another gets delays before and behind it.
void expect_delays_change_nothing(ProcessGroup& group) {
  constexpr int kSteps = 200;
  const TrainStepOptions enqueued{.accumulate = 2, .grad_norm = true, .graph = false};
  TrainStepOptions captured = enqueued;
  captured.graph = true;
  const Outcome expected = train(large_mlp, group, SgdConfig{.momentum = 0.9}, enqueued, kSteps);
  std::mt19937_64 random(testing::test_seed() + static_cast<std::uint64_t>(group.rank()));
  int delays = 0;
  set_stream_hook([&](void* stream) {
    if (random() % 4 == 0) testing::enqueue_delay(stream, static_cast<std::int64_t>(random() % 400));
    ++delays;
  });
  EXPECT_TRUE(train(large_mlp, group, SgdConfig{.momentum = 0.9}, enqueued, kSteps) == expected);
  EXPECT_GT(delays, kSteps);
  EXPECT_TRUE(train(large_mlp, group, SgdConfig{.momentum = 0.9}, captured, kSteps) == expected);
  set_stream_hook({});
}

TEST(Gpu, DelaysOnTheStreamsOfTwoRanksChangeNoBit) {
  SKIP_WITHOUT_GPUS(2);
  EXPECT_EQ(testing::run_gpu_world(2, expect_delays_change_nothing), (std::vector<int>{0, 0}));
}

// One training after the other over the same group: nothing of one that is gone is freed while the next is captured.
void expect_timelines(ProcessGroup& group) {
  Context context(testing::gpu_options(group.rank()));
  const ContextScope scope(context);
  for (int training = 0; training < 6; ++training) {
    TrainStep::LossFunction loss;
    const std::unique_ptr<Module> model = large_mlp(loss);
    TrainStep step(*model, loss, SgdConfig{}, group, {.timeline = true, .caps = {.cap_mib = 8.0}});
    const DeviceBatch batch = batch_of(0, 0);
    StepTimeline before;
    for (int i = 0; i < 4; ++i) {
      step.run([&] { return batch; }, 0.01);
      const StepTimeline timeline = step.timeline();
      expect_in_order(timeline, step.arena());
      EXPECT_LT(timeline.step_ms, 1000.0);
      EXPECT_NE(timeline.step_ms, before.step_ms);
      before = timeline;
    }
    EXPECT_TRUE(step.captured());
  }
}

TEST(Gpu, TimelinesOfTwoRanksAreThoseOfTheReplay) {
  SKIP_WITHOUT_GPUS(2);
  EXPECT_EQ(testing::run_gpu_world(2, expect_timelines), (std::vector<int>{0, 0}));
}

// One rank cannot capture the step: then none replays it, and all go on.
void expect_fallback(ProcessGroup& group) {
  TrainStep::LossFunction loss;
  const std::unique_ptr<Module> model = lenet(loss);
  const auto loss_or_refusal = [&](const DeviceBatch& batch) {
    if (group.rank() == 1 && is_capturing(context().exec().stream)) throw Error("no capture on this rank");
    return loss(batch);
  };
  TrainStep step(*model, loss_or_refusal, SgdConfig{}, group);
  const DeviceBatch batch = batch_of(static_cast<std::uint64_t>(group.rank()), group.rank() * kBatch);
  double last = 0;
  for (int i = 0; i < 4; ++i) {
    const double now = step.run([&] { return batch; }, 0.05).loss;
    EXPECT_NE(now, last);
    last = now;
  }
  EXPECT_FALSE(step.captured());
}

TEST(Gpu, WhereOneOfTwoRanksCannotCaptureAllGoOnWithoutGraphs) {
  SKIP_WITHOUT_GPUS(2);
  EXPECT_EQ(testing::run_gpu_world(2, expect_fallback), (std::vector<int>{0, 0}));
}

// Sizes that no step had, between steps whose all-reduces may be under way.
void expect_evaluation_and_new_sizes(ProcessGroup& group) {
  LeNet model;
  const auto loss = [&](const DeviceBatch& batch) {
    return softmax_cross_entropy(model.forward(batch.samples), batch.labels);
  };
  TrainStep step(model, loss, SgdConfig{}, group, {.graph = false});
  const auto dataset = synthetic_dataset({.size = 101});
  const DeviceBatch batch = batch_of(static_cast<std::uint64_t>(group.rank()), group.rank() * kBatch);
  const DeviceBatch half = half_of(batch);
  for (const DeviceBatch& next : {batch, half, batch}) {
    step.enqueue([&] { return next; }, 0.01);
    const auto logits = [&](const Tensor& samples) { return model.forward(samples); };
    EXPECT_EQ(evaluate(model, logits, *dataset, 16, group).samples, 101);
    step.result();
  }
  EXPECT_THROW(loss(batch_of(0, 0, kBatch + 1)), std::runtime_error) << "no plan, and none may be made";
}

TEST(Gpu, EvaluationAndNewSizesOfTwoRanksHavePlans) {
  SKIP_WITHOUT_GPUS(2);
  EXPECT_EQ(testing::run_gpu_world(2, expect_evaluation_and_new_sizes), (std::vector<int>{0, 0}));
}

TEST(Gpu, CapturedStepsHaveTheBitsOfEnqueuedOnes) {
  SKIP_WITHOUT_GPUS(1);
  Context context(ContextOptions{.device = DeviceType::cuda});
  const ContextScope scope(context);
  expect_captured_equals_enqueued(*make_local_groups(1).front());
}

TEST(Gpu, DelaysOnTheStreamsChangeNoBit) {
  SKIP_WITHOUT_GPUS(1);
  Context context(ContextOptions{.device = DeviceType::cuda});
  const ContextScope scope(context);
  expect_delays_change_nothing(*make_local_groups(1).front());
}

TEST(Gpu, AParameterIsNotUpdatedBeforeItsLastReader) {
  SKIP_WITHOUT_GPUS(1);
  const auto groups = make_local_groups(1);
  for (const bool graph : {false, true}) {
    TrainStepOptions options{.graph = graph};
    const Outcome buckets = train(detached_reader, *groups.front(), SgdConfig{}, options, 4);
    options.caps = {.first_mib = 1000, .cap_mib = 1000};  // one bucket, updated after backward
    const Outcome one_bucket = train(detached_reader, *groups.front(), SgdConfig{}, options, 4);
    EXPECT_EQ(buckets.losses, one_bucket.losses) << "graph " << graph;
  }
}

TEST(Gpu, AStepNeitherWaitsNorAllocates) {
  SKIP_WITHOUT_GPUS(1);
  for (const bool graph : {true, false}) {
    LenetOnGpu lenet({.momentum = 0.9}, {.accumulate = 2, .clip_norm = 1.0, .graph = graph});
    TrainStep& step = lenet.step;
    const DeviceBatch batch = batch_of(0, 0);
    for (int i = 0; i < 3; ++i) step.run([&] { return batch; }, 0.05);
    int counted = 0;
    for (int i = 0; i < 20; ++i) {
      const int before = waits + allocations;
      step.enqueue([&] { return batch; }, 0.05);
      counted += waits + allocations - before;
      if (step.pending() == StepReports::kSlots) step.result();
    }
    EXPECT_EQ(counted, 0) << "graph " << graph;
    const int before = waits;
    while (step.pending() > 0) step.result();
    EXPECT_EQ(waits - before, StepReports::kSlots - 1) << "the count sees a wait";
    // Work between replays, as an evaluation, takes no memory that the graphs hold.
    const Tensor kept =
        Tensor::from_host(std::span<const float>(std::vector<float>(kBatch * 28 * 28 * 6, 3.0F)), {kBatch, 28, 28, 6});
    step.run([&] { return batch; }, 0.05);
    EXPECT_EQ(kept.to_host<float>(), std::vector<float>(kBatch * 28 * 28 * 6, 3.0F));
  }
}

TEST(Gpu, TimelineIsThatOfTheReplay) {
  SKIP_WITHOUT_GPUS(1);
  Context context(ContextOptions{.device = DeviceType::cuda});
  const ContextScope scope(context);
  expect_timelines(*make_local_groups(1).front());
}

TEST(Gpu, InputsArriveInOrder) {
  SKIP_WITHOUT_GPUS(1);
  Context context(ContextOptions{.device = DeviceType::cuda});
  const ContextScope scope(context);
  const auto dataset = synthetic_dataset({.size = 512});
  const auto sampler = [&] {
    return std::make_unique<TrainSampler>(dataset->size(), BatchSplit{.batch_per_rank = kBatch}, 0);
  };
  Loader plain(*dataset, sampler());
  Loader ahead(*dataset, sampler());
  TrainInput input(*dataset, ahead, zero_batch(kBatch, *dataset));
  std::vector<std::vector<float>> expected;
  std::vector<Tensor> seen;
  for (int i = 0; i < 40; ++i) {
    expected.push_back(to_device(plain.next(), dataset->info()).samples.to_host<float>());
  }
  for (int i = 0; i < 40; ++i) {
    testing::enqueue_delay(context.exec().stream, 200);  // the host is ahead
    const DeviceBatch batch = input.next();
    seen.push_back(Tensor::empty(batch.samples.shape(), DType::f32));
    copy_on_device(DeviceType::cuda, seen.back().view().data, batch.samples.view().data,
                   static_cast<std::size_t>(batch.samples.view().bytes()));
  }
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i].to_host<float>(), expected[i]) << i;
}

// The pool was last laid out for another size.
TEST(Gpu, AStepIsCapturedWhateverSizesWerePreparedBefore) {
  SKIP_WITHOUT_GPUS(1);
  LenetOnGpu lenet;
  TrainStep& step = lenet.step;
  const DeviceBatch batch = batch_of(0, 0);
  const DeviceBatch half = half_of(batch);
  for (const DeviceBatch& next : {half, batch, half}) step.prepare(next);
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(step.run([&] { return half; }, 0.05).step, i);
  EXPECT_TRUE(step.captured());
}

TEST(Gpu, BatchesOfAnotherSizeAreRefusedByName) {
  SKIP_WITHOUT_GPUS(1);
  LenetOnGpu lenet;
  TrainStep& step = lenet.step;
  const DeviceBatch batch = batch_of(0, 0);
  step.run([&] { return batch; }, 0.05);
  const DeviceBatch half = half_of(batch);
  EXPECT_THROW(step.run([&] { return half; }, 0.05), std::invalid_argument);
  EXPECT_EQ(step.run([&] { return batch; }, 0.05).step, 2) << "what was refused was no step";
}

}  // namespace
}  // namespace lockstep
