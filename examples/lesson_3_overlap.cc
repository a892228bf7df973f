// Lesson 3: data parallelism done naively, then bucketed, then overlapped. Two ranks train the same deep, narrow model
// in three ways that differ only in when its gradients are summed; docs/lesson_3_overlap.md leads through it.
//
//     build/bin/lesson_3_overlap [STEPS]
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/distributed/bucketer.h"
#include "framework/distributed/data_parallel.h"
#include "framework/distributed/world.h"
#include "framework/interconnect/emulated_group.h"
#include "framework/nn/init.h"
#include "framework/nn/layers.h"
#include "framework/ops/activation.h"
#include "framework/ops/reduction.h"
#include "framework/optim/optimizer.h"

using namespace lockstep;

namespace {

constexpr int kRanks = 2;
constexpr int kLayers = 32;
constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kBatch = 64;
constexpr double kBucketMib = 1.0;
constexpr int kWarmUp = 3;  // steps

// Where the bytes travel: an emulated link, which needs no processor for it, as links between GPUs need none.
const CostModel kLink{
    .link = "0.5 GB/s, 0.3 ms to start",
    .ranks = kRanks,
    .regimes = {{.first_bytes = 1, .last_bytes = 1 << 30, .alpha_us = 300, .beta_us_per_byte = 2e-3}}};

class Net : public Module {
 public:
  Net() {
    for (int i = 0; i < kLayers; ++i) {
      layers_.push_back(std::make_unique<Linear>(kWidth, kWidth));
      register_module(std::to_string(i), *layers_.back());
    }
  }
  Tensor forward(Tensor x) const {
    for (const auto& layer : layers_) x = relu(layer->forward(x));
    return mean(x);
  }

 private:
  std::vector<std::unique_ptr<Linear>> layers_;
};

// A model in training, step by step: the whole of data parallelism, in the order in which it happens.
class Training {
 public:
  Training(const char* name, ProcessGroup& group, Overlap overlap) : name_(name), group_(group) {
    const ContextScope scope(context_);  // one for each training: they all draw the same initial values
    model_ = std::make_unique<Net>();
    x_ = uniform({kBatch, kWidth}, -1.0, 1.0);
    std::vector<Parameter*> order;
    {
      Tape tape;  // a first forward pass tells in which order backward will finish the gradients
      order = tape.gradient_order(model_->forward(x_));
    }
    arena_.emplace(make_replicas(*model_, order, group_, {.cap_mib = kBucketMib}));
    bucketer_.emplace(*arena_, group_, BucketerOptions{.overlap = overlap});
    optimizer_ = make_optimizer(SgdConfig{}, *arena_);
  }

  void step() {
    const ContextScope scope(context_);
    const auto start = std::chrono::steady_clock::now();
    arena_->begin_step();
    Tape tape;
    const Tensor loss = model_->forward(x_);
    tape.backward(loss, 1.0 / group_.size(), &*bucketer_);  // with overlap, buckets leave from in here
    bucketer_->finish();
    optimizer_->step(1e-3);
    step_ms_.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }

  const char* name() const { return name_; }
  std::vector<float> parameters() const { return arena_->values().to_host<float>(); }
  double median_ms() const {
    std::vector<double> sorted(step_ms_.begin() + kWarmUp, step_ms_.end());
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }

 private:
  Context context_;
  const char* name_;
  ProcessGroup& group_;
  std::unique_ptr<Net> model_;
  Tensor x_;
  std::optional<ParameterArena> arena_;
  std::optional<Bucketer> bucketer_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<double> step_ms_;
};

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::max(1, std::atoi(argv[1])) : 50;
  return run_ranks(kRanks, argv, [steps](World& world) {
    const auto nobody = make_process_group("local", Environment{}, nullptr);  // the same step with none to talk to
    Training alone("alone, without communication", *nobody, Overlap::on);
    EmulatedGroup link(world.group(), kLink, /*slow_motion=*/1.0);
    Training naive("naive: one by one after backward", link, Overlap::naive);
    Training bucketed("bucketed: after backward", link, Overlap::off);
    Training overlapped("overlapped: buckets during backward", link, Overlap::on);
    const std::array trainings{&alone, &naive, &bucketed, &overlapped};
    // In turn, so that what else the machine does meets all of them.
    for (int i = 0; i < kWarmUp + steps; ++i) {
      for (Training* training : trainings) {
        link.barrier().wait();
        training->step();
      }
    }
    if (naive.parameters() != bucketed.parameters() || naive.parameters() != overlapped.parameters()) {
      throw Error("the three ways ended with different parameters");
    }
    if (world.rank() != 0) return;
    fmt::print("{} parameters in {} tensors, {} ranks, an emulated link of {}\n", kLayers * (kWidth * kWidth + kWidth),
               2 * kLayers, kRanks, kLink.link);
    fmt::print("{:36} {:>9} {:>20}\n", "", "step (ms)", "communication (ms)");
    for (const Training* training : trainings) {
      const double ms = training->median_ms();
      fmt::print("{:36} {:9.2f} {:20.2f}\n", training->name(), ms, ms - alone.median_ms());
    }
    fmt::print("all three ways end with the same bits\n");
  });
}
