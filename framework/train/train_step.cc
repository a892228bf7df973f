#include "framework/train/train_step.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/core/device_copy.h"
#include "framework/core/error.h"
#include "framework/core/profile_range.h"
#include "framework/distributed/agreement.h"
#include "framework/distributed/data_parallel.h"
#include "framework/train/plan_phase.h"
#include "kernels/dispatch.h"
#include "kernels/elementwise.h"

namespace lockstep {
namespace {

// Below this an update on a stream of its own costs more than backward hides of it.
constexpr std::int64_t kLeastBytesBeside = std::int64_t{16} << 20;

// A loss that needs no labels gets none.
Tensor empty_like(const Tensor& tensor) {
  return tensor.defined() ? Tensor::empty(tensor.shape(), tensor.dtype()) : Tensor{};
}

bool alike(const Tensor& a, const Tensor& b) {
  return a.defined() == b.defined() && a.shape() == b.shape() && a.dtype() == b.dtype();
}

bool alike(const DeviceBatch& a, const DeviceBatch& b) {
  return alike(a.samples, b.samples) && alike(a.labels, b.labels);
}

std::string describe(const DeviceBatch& batch) {
  return fmt::format("{} {} and labels {} {}", dtype_name(batch.samples.dtype()), batch.samples.shape(),
                     dtype_name(batch.labels.dtype()), batch.labels.shape());
}

}  // namespace

TrainStep::TrainStep(Module& model, LossFunction loss, const OptimizerConfig& optimizer, ProcessGroup& group,
                     const TrainStepOptions& options)
    : model_(model),
      loss_function_(std::move(loss)),
      optimizer_config_(optimizer),
      group_(group),
      options_(options),
      pool_(device_allocator(context().device()).make_pool()),
      wants_graph_(options.graph && on_gpu()) {
  expect(options.accumulate >= 1, "train step: expected at least 1 micro-step, got {}", options.accumulate);
  expect(options.grad_dtype != DType::bf16 || on_gpu(), "train step: expected a GPU for gradients of bf16, got a CPU");
  if constexpr (kernels::kHasCuda) {
    if (on_gpu()) {
      beside_ = Stream::create(StreamPriority::lowest);
      gradients_ready_ = Event::create();
      finished_beside_ = Event::create();
    }
  }
}

TrainStep::~TrainStep() {
  try {
    loss_reduced_.wait();
    context().synchronize();
    graphs_.reset();
    device_allocator(context().device()).trim(pool_);
  } catch (const std::exception&) {
    // result() has told; here it only matters that it ended.
  }
}

// What the loss of a micro-batch counts in that of the step. Collectives sum, so gradients have it from the seed on.
double TrainStep::share() const { return 1.0 / (options_.accumulate * group_.size()); }

bool TrainStep::is_that_of_the_step(const Tensor& loss) const { return share() == 1 && loss.dtype() == loss_.dtype(); }

const DeviceBatch& TrainStep::prepare(const DeviceBatch& batch) {
  const bool of_new_size = !alike(input_, batch);
  if (of_new_size) {
    expect(!captured(),
           "train step: expected samples {} as in the steps before, got {}; use graph = false for batches of several "
           "sizes",
           describe(input_), describe(batch));
    input_ = {.samples = empty_like(batch.samples), .labels = empty_like(batch.labels)};
  }
  read_in(batch);
  if (!of_new_size) return input_;
  const std::string size = describe(batch);
  // A step that is to be captured is planned last: its blocks must lie where its passes left them.
  if (!wants_graph_ && std::ranges::find(planned_, size) != planned_.end()) return input_;
  try {
    planned_.empty() ? lay_out() : plan_together(group_, [this] { plan_passes(); });
  } catch (...) {
    input_ = {};  // the size is as new as before
    throw;
  }
  planned_.push_back(size);
  return input_;
}

// What is in these tensors already is not copied.
void TrainStep::read_in(const DeviceBatch& batch) {
  expect(alike(input_, batch), "train step: expected micro-batches of one size, got samples {} after {}",
         describe(batch), describe(input_));
  const auto copy = [](const Tensor& to, const Tensor& from) {
    if (to.defined())
      copy_on_device(to.device(), to.view().data, from.view().data, static_cast<std::size_t>(to.view().bytes()));
  };
  copy(input_.samples, batch.samples);
  copy(input_.labels, batch.labels);
  input_.first = batch.first;
  context().random.sample_offset = batch.first;
}

void TrainStep::lay_out() {
  std::vector<Parameter*> order;
  const auto first_forward = [&] {
    Tape tape;
    const Tensor loss = loss_function_(input_);
    order = tape.gradient_order(loss);
    seed_ = Tensor::empty({}, loss.dtype());
  };
  plan_together(group_, first_forward);
  if (order.empty()) first_forward();
  const bool accumulates = options_.accumulate > 1;
  arena_.emplace(make_replicas(model_, order, group_, options_.caps, accumulates ? std::nullopt : options_.grad_dtype));
  if (options_.clip_norm > 0 || options_.grad_norm) gradient_norm_.emplace(*arena_, options_.clip_norm);
  optimizer_ = make_optimizer(optimizer_config_, *arena_);
  loss_ = Tensor::zeros({}, statistics_dtype(context().dtype()));
  LOCKSTEP_DISPATCH(fill, context().exec(), seed_, share());

  BucketerOptions buckets = options_.buckets;
  if (accumulates && options_.grad_dtype) buckets.wire_dtype = options_.grad_dtype;
  if (on_gpu() && arena_->grads().view().bytes() >= kLeastBytesBeside) {
    most_beside_ = arena_->buckets().size() - 1;  // after the last there is no backward to hide it
  }
  if (options_.timeline || (on_gpu() && group_.size() > 1)) {
    recorder_ = std::make_shared<StepRecorder>(*arena_, optimizer_->scalars(), options_.timeline);
    buckets.on_ready = [this](std::size_t bucket) { recorder_->mark_ready(bucket); };
    buckets.on_launch = [this](std::size_t bucket) { recorder_->mark_launched(bucket); };
  }
  buckets.on_launched = [this](std::size_t bucket) { launched(bucket); };
  bucketer_.emplace(*arena_, group_, buckets);
  plan_together(group_, [this] {
    plan_passes();
    plan_update();
  });
}

void TrainStep::plan_passes() {
  CachingAllocator& allocator = device_allocator(DeviceType::cuda);
  const auto pass = [&](bool first) {
    Tape tape;
    tape.backward(forward(first), seed_);
  };
  allocator.trim(pool_);  // of another size
  arena_->begin_step();
  pass(true);   // gradients are written
  pass(false);  // and added to; all scratch memory is there now
  const std::size_t in_use = allocator.stats().bytes_in_use;
  allocator.reset_peak();
  pass(false);
  activation_bytes_ = std::max(activation_bytes_, allocator.stats().bytes_peak - in_use);
  context().synchronize();
  allocator.trim(MemoryPool::shared);
  allocator.reserve(pool_, activation_bytes_);
  // Until a pass finds all its blocks where the one before left them: a capture must not ask the system for any.
  const MemoryPoolScope memory(pool_);
  std::int64_t asked = 0;
  do {
    asked = allocator.stats().system_allocations;
    pass(false);
  } while (allocator.stats().system_allocations != asked);
}

// Everything else that a step does but communication, without a change of any parameter: gradients of zero, a rate of
// zero.
void TrainStep::plan_update() {
  arena_->grads().fill_zero();
  optimizer_->begin_step(0.0);
  for (const Bucket& bucket : arena_->buckets()) finish(bucket.range);
  finish(arena_->whole());
  update();
  if (recorder_) recorder_->mark_finished(0, {});
  reports_.write(loss_, nullptr, optimizer_->scalars());
  optimizer_->set_steps(0);
  for (const Optimizer::State& moment : optimizer_->state()) moment.values.fill_zero();  // weight decay went into it
}

void TrainStep::enqueue(const NextBatch& next, double learning_rate) {
  expect(pending() < StepReports::kSlots,
         "train step: expected at most {} steps whose results are not taken, got one more", StepReports::kSlots);
  const ProfileRange range("step");
  prepare(next());
  context().random.step = static_cast<std::uint64_t>(optimizer_->steps());
  optimizer_->begin_step(learning_rate);
  for (int micro = 0; micro < options_.accumulate; ++micro) {
    if (micro > 0) read_in(next());
    captured() ? replay(position_of(micro)) : micro_step(position_of(micro));
  }
  optimizer_->counted();
  reports_.enqueued(optimizer_->steps());
  if (wants_graph_ && !captured()) capture();
}

// Adds the loss, times its share, to loss_; one that is that of the step is reported as it is.
Tensor TrainStep::forward(bool first) {
  const ProfileRange range("forward");
  const Tensor loss = loss_function_(input_);
  if (!is_that_of_the_step(loss)) LOCKSTEP_DISPATCH(scale, context().exec(), loss, share(), GradView{loss_, !first});
  return loss;
}

void TrainStep::micro_step(Position position) {
  using Moment = StepRecorder::Moment;
  const MemoryPoolScope memory(pool_);
  if (position.first) arena_->begin_step();
  if (position.first && recorder_) recorder_->mark(Moment::begin);
  Tape tape;
  const Tensor loss = forward(position.first);
  if (!position.last) return tape.backward(loss, seed_);

  if (recorder_) recorder_->mark(Moment::forward);
  // An op that read a parameter without a gradient may read it again when none is owed any more.
  buckets_beside_ = tape.reads_without_gradient(arena_->values()) ? 0 : most_beside_;
  loss_reduced_ = group_.all_reduce(loss_, ReduceOp::sum, "loss");  // hidden behind backward
  tape.backward(loss, seed_, &*bucketer_);
  bucketer_->flush();
  if (recorder_) recorder_->mark(Moment::backward);
  update();
  loss_reduced_.wait();
  if (recorder_) recorder_->mark(Moment::end);
  reports_.write(is_that_of_the_step(loss) ? loss : loss_, gradient_norm_ ? gradient_norm_->device_norm() : nullptr,
                 optimizer_->scalars());
}

// Of the bucketer: the all-reduce of a bucket is under way.
void TrainStep::launched(std::size_t bucket) {
  if (recorder_ && on_gpu()) recorder_->mark_finished(bucket, bucketer_->work(bucket));
  if (bucket < buckets_beside_) finish_beside(bucket);
}

// On a stream of its own, while backward goes on. Backward no longer reads the bucket's parameters: here, whoever reads
// one also writes its gradient, and no write is owed.
void TrainStep::finish_beside(std::size_t bucket) {
  if constexpr (kernels::kHasCuda) {
    gradients_ready_.record(context().exec().stream);
    gradients_ready_.make_wait(beside_.get());
    const StreamScope scope(beside_);
    bucketer_->wait(bucket);
    finish(arena_->buckets()[bucket].range);
    finished_beside_.record(beside_.get());
  }
}

// What can be done with gradients as soon as they are reduced. The clip factor needs all of them: with clipping one
// update follows the last bucket.
void TrainStep::finish(Range gradients) {
  if (gradient_norm_) gradient_norm_->measure(gradients);
  if (options_.clip_norm == 0) optimizer_->update(gradients);
}

void TrainStep::update() {
  const ProfileRange range("update");
  const auto buckets = arena_->buckets();
  for (std::size_t i = buckets_beside_; i < buckets.size(); ++i) {
    bucketer_->wait(i);
    if (recorder_ && !on_gpu()) recorder_->mark_finished(i, bucketer_->work(i));
    if (!on_gpu() || buckets_beside_ > 0) finish(buckets[i].range);
  }
  if constexpr (kernels::kHasCuda) {
    if (on_gpu() && buckets_beside_ == 0) finish(arena_->whole());  // small: one launch, not one for each bucket
    if (buckets_beside_ > 0) finished_beside_.make_wait(context().exec().stream);
    if (recorder_) recorder_->join();
  }
  if (gradient_norm_) gradient_norm_->combine();
  if (options_.clip_norm > 0) optimizer_->update(arena_->whole(), gradient_norm_->clip_factor());
}

StepReport TrainStep::result() {
  const StepReport report = reports_.take();
  group_.check();  // what a failed collective left is not taken for a result
  return report;
}

void TrainStep::advance(const NextBatch& next, double learning_rate, bool last,
                        const std::function<void(const StepReport&)>& on_result) {
  enqueue(next, learning_rate);
  const std::int64_t ahead = on_gpu() && !last ? 2 : 0;
  while (pending() > ahead) on_result(result());
}

StepReport TrainStep::run(const NextBatch& next, double learning_rate) {
  enqueue(next, learning_rate);
  return result();
}

// After a step that ran eagerly: every kernel is loaded, every plan made, every block of memory there.
void TrainStep::capture() {
  if constexpr (kernels::kHasCuda) {
    wants_graph_ = false;
    auto graphs = std::make_unique<Graphs>();
    context().keep_workspace();
    context().update_device_random();
    std::string failure;
    try {
      for (int micro = 0; micro < options_.accumulate; ++micro) {
        CudaGraph& graph = graphs->at(position_of(micro));
        if (!graph.captured()) graph.capture([&] { micro_step(position_of(micro)); });
      }
    } catch (const std::exception& error) {
      failure = fmt::format("rank {}: {}", group_.rank(), error.what());
    }
    // A replay is a collective: all ranks replay, or none.
    for (const std::string& other : gather_texts(group_, "capture", failure)) {
      if (failure.empty()) failure = other;
    }
    if (failure.empty()) {
      graphs_ = std::move(graphs);
    } else if (group_.rank() == 0) {
      spdlog::warn("steps are enqueued one by one, since they cannot be captured: {}", failure);
    }
  }
}

void TrainStep::replay(Position position) {
  if constexpr (kernels::kHasCuda) {
    context().update_device_random();
    graphs_->at(position).launch();
    // Each micro-step by itself: a deadline is for one collective, not for however many micro-steps come before it.
    // Not kept alive by what is watched: its memory must not be freed in the middle of another step's capture.
    group_.watch([watched = std::weak_ptr(recorder_)] {
      const auto recorder = watched.lock();
      return recorder ? recorder->progress() : "a captured step";
    });
  }
}

}  // namespace lockstep
