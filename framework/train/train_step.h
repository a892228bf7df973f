// One optimizer step of synchronous data parallelism. The text of TrainStep::micro_step is the order in which things
// happen; docs/data_parallel.md walks through it. On a GPU that text runs once, is then captured into CUDA graphs and
// from the second step on only replayed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "framework/core/allocator.h"
#include "framework/core/cuda_graph.h"
#include "framework/core/stream.h"
#include "framework/core/tensor.h"
#include "framework/distributed/bucketer.h"
#include "framework/distributed/process_group.h"
#include "framework/nn/module.h"
#include "framework/optim/gradient_norm.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/parameter_arena.h"
#include "framework/train/step_recorder.h"
#include "framework/train/step_reports.h"

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
  bool graph = true;       // GPU: replay the step as a CUDA graph; off, the same is enqueued anew in each step
  bool timeline = false;   // record it, at the cost of some microseconds a bucket
  BucketerOptions buckets;
  BucketCaps caps;
  // bf16, on GPUs only: gradients are kept and reduced in bf16; with accumulation they are added up as always and only
  // travel in bf16. Unset: as the master parameters.
  std::optional<DType> grad_dtype;
};

class TrainStep {
 public:
  // A scalar: the mean loss over the batch's samples.
  using LossFunction = std::function<Tensor(const DeviceBatch&)>;
  using NextBatch = std::function<DeviceBatch()>;

  // model and group must outlive the step.
  TrainStep(Module& model, LossFunction loss, const OptimizerConfig& optimizer, ProcessGroup& group,
            const TrainStepOptions& options = {});
  // Waits for what is under way: memory of the step belongs to the group until then.
  ~TrainStep();
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  // Lays out the arena in the order of a first forward pass of `batch`, makes the ranks equal, makes the optimizer and,
  // on a GPU, all plans; for a batch of another size than before, the plans only. Returns the tensors that the step
  // reads, with a copy of `batch`. A step does it by itself; call it where the state must exist before, as to resume,
  // and where batches can be written straight into those tensors.
  const DeviceBatch& prepare(const DeviceBatch& batch);

  // Enqueues one step over options.accumulate micro-batches taken from `next`, all of one size on every rank. A GPU is
  // not waited for. A batch that is not in the tensors of prepare() is copied there. At most StepReports::kSlots steps
  // may be enqueued whose results are not taken. Throws std::invalid_argument before anything has changed where that
  // or, of a replayed step, the size of the batch is not as it must be.
  void enqueue(const NextBatch& next, double learning_rate);
  // Steps whose results are not taken, and the result of the oldest, which is waited for. Throws Error where the group
  // has failed.
  std::int64_t pending() const { return reports_.pending(); }
  StepReport result();
  // Enqueues a step and hands on results, the oldest first: on a GPU those of all steps but two, so that it is never
  // without work; all of them where this step is the last for now.
  void advance(const NextBatch& next, double learning_rate, bool last,
               const std::function<void(const StepReport&)>& on_result);
  // One step and its result.
  StepReport run(const NextBatch& next, double learning_rate);

  ParameterArena& arena() { return *arena_; }
  Optimizer& optimizer() { return *optimizer_; }
  // When the last step whose result was taken came where; with options.timeline.
  StepTimeline timeline() const { return recorder_->timeline(); }
  // See Bucketer.
  std::int64_t reduced_bytes() const { return bucketer_->reduced_bytes(); }
  DType wire_dtype() const { return bucketer_->wire_dtype(); }
  // Whether steps are replayed from now on.
  bool captured() const { return graphs_ != nullptr; }

 private:
  // What the micro-steps of a step differ in: the first overwrites gradients, the last reduces them and updates.
  struct Position {
    bool first;
    bool last;
  };
  // One for each position, of which a step without accumulation has one and others up to three.
  struct Graphs {
    std::array<CudaGraph, 4> of;
    CudaGraph& at(Position position) { return of[(position.first ? 2U : 0U) + (position.last ? 1U : 0U)]; }
  };

  Position position_of(int micro) const { return {micro == 0, micro + 1 == options_.accumulate}; }
  void read_in(const DeviceBatch& batch);
  void lay_out();
  Tensor forward(bool first);
  void micro_step(Position position);
  void launched(std::size_t bucket);
  void finish_beside(std::size_t bucket);
  void finish(Range gradients);
  void update();
  void plan_passes();
  void plan_update();
  void capture();
  void replay(Position position);
  double share() const;
  bool is_that_of_the_step(const Tensor& loss) const;

  Module& model_;
  LossFunction loss_function_;
  OptimizerConfig optimizer_config_;
  ProcessGroup& group_;
  TrainStepOptions options_;
  StepReports reports_;
  MemoryPool pool_;                   // of activations
  std::size_t activation_bytes_ = 0;  // the most of any size planned
  std::vector<std::string> planned_;  // sizes of batches, by description
  DeviceBatch input_;  // what forward reads, always at the same addresses: nobody else's, since every batch goes there
  std::optional<ParameterArena> arena_;
  std::optional<GradientNorm> gradient_norm_;
  std::unique_ptr<Optimizer> optimizer_;
  std::shared_ptr<StepRecorder> recorder_;  // shared with hang reports
  std::optional<Bucketer> bucketer_;
  Work loss_reduced_;
  Tensor loss_;  // scalar: the mean over the global batch, summed up over micro-steps and ranks where there are several
  Tensor seed_;  // of backward: share()

  // GPU: where buckets are finished while backward goes on, and the marks between that stream and the compute stream.
  Stream beside_;
  Event gradients_ready_, finished_beside_;
  std::size_t most_beside_ = 0;     // the first so many,
  std::size_t buckets_beside_ = 0;  // but none in a step where that is not safe
  bool wants_graph_ = false;
  std::unique_ptr<Graphs> graphs_;
};

}  // namespace lockstep
