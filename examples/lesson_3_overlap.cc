// Lesson 3: data parallelism done naively, then bucketed, then overlapped. Two ranks train the same deep, narrow model
// in three ways that differ only in when its gradients are summed; docs/lesson_3_overlap.md leads through it.
//
//     build/bin/lesson_3_overlap [STEPS]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <vector>

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/distributed/bucketer.h"
#include "framework/distributed/data_parallel.h"
#include "framework/distributed/world.h"
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

// Median time of a step in ms.
double measure(ProcessGroup& group, Overlap overlap, int steps) {
  Net model;
  const Tensor x = uniform({kBatch, kWidth}, -1.0, 1.0);

  std::vector<Parameter*> order;
  {
    Tape tape;  // a first forward pass tells in which order backward will finish the gradients
    order = tape.gradient_order(model.forward(x));
  }
  ParameterArena arena = make_replicas(model, order, group);
  Bucketer bucketer(arena, group, {.overlap = overlap});
  const auto optimizer = make_optimizer(SgdConfig{}, arena);

  std::vector<double> step_ms;
  for (int step = -3; step < steps; ++step) {  // the first three warm up
    group.barrier().wait();
    const auto start = std::chrono::steady_clock::now();
    arena.begin_step();
    Tape tape;
    const Tensor loss = model.forward(x);
    tape.backward(loss, 1.0 / group.size(), &bucketer);  // with overlap, buckets leave from in here
    bucketer.finish();
    optimizer->step(1e-3);
    if (step >= 0) {
      step_ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
  }
  std::nth_element(step_ms.begin(), step_ms.begin() + steps / 2, step_ms.end());
  return step_ms[static_cast<std::size_t>(steps / 2)];
}

// The same step with nobody to talk to.
double measure_alone(int steps) {
  const auto alone = make_process_group("local", Environment{}, nullptr);
  return measure(*alone, Overlap::on, steps);
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::max(1, std::atoi(argv[1])) : 50;
  return run_ranks(kRanks, argv, [steps](World& world) {
    Context context;
    const ContextScope scope(context);
    const double alone_ms = measure_alone(steps);
    struct Way {
      const char* name;
      Overlap overlap;
    };
    if (world.rank() == 0) {
      fmt::print("{} parameters in {} tensors, {} ranks\n", kLayers * (kWidth * kWidth + kWidth), 2 * kLayers, kRanks);
      fmt::print("{:36} {:>9} {:>20}\n", "", "step (ms)", "communication (ms)");
      fmt::print("{:36} {:9.2f}\n", "alone, without communication", alone_ms);
    }
    for (const Way& way :
         {Way{"naive: one by one after backward", Overlap::naive}, Way{"bucketed: after backward", Overlap::off},
          Way{"overlapped: buckets during backward", Overlap::on}}) {
      const double way_ms = measure(world.group(), way.overlap, steps);
      if (world.rank() == 0) fmt::print("{:36} {:9.2f} {:20.2f}\n", way.name, way_ms, way_ms - alone_ms);
    }
  });
}
