// Lesson 1: a model trained by hand. Nothing here but tensors, ops, a tape and a loop; docs/lesson_1_train_by_hand.md
// leads through it.
//
//     build/bin/lesson_1_train_by_hand [STEPS]
#include <fmt/core.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/data/loader.h"
#include "framework/data/synthetic.h"
#include "framework/nn/init.h"
#include "framework/ops/activation.h"
#include "framework/ops/linear.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/train/input.h"
#include "kernels/dispatch.h"
#include "kernels/elementwise.h"

using namespace lockstep;

namespace {

constexpr std::int64_t kPixels = 28 * 28;
constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kClasses = 10;
constexpr std::int64_t kBatch = 64;
constexpr double kLearningRate = 0.1;

// The parameters: tensors with a name that the tape keeps gradients for.
struct Net {
  Parameter weight1{"weight1", fan_in_uniform({kHidden, kPixels}, kPixels), true};
  Parameter bias1{"bias1", constant({kHidden}, 0.0), false};
  Parameter weight2{"weight2", fan_in_uniform({kClasses, kHidden}, kHidden), true};
  Parameter bias2{"bias2", constant({kClasses}, 0.0), false};

  std::array<Parameter*, 4> parameters() { return {&weight1, &bias1, &weight2, &bias2}; }

  Tensor forward(const Tensor& images) const {
    const Tensor x = images.reshape({images.dim(0), kPixels});
    const Tensor hidden = relu(linear(x, weight1.value, bias1.value));
    return linear(hidden, weight2.value, bias2.value);
  }
};

double loss_of(const Net& net, const DeviceBatch& batch) {
  return softmax_cross_entropy(net.forward(batch.samples), batch.labels).to_host<double>()[0];
}

// The tape's gradient of one weight, beside the slope of the loss when that weight is nudged.
void check_one_gradient(Net& net, const DeviceBatch& batch) {
  {
    Tape tape;
    tape.backward(softmax_cross_entropy(net.forward(batch.samples), batch.labels));
  }
  for (Parameter* parameter : net.parameters()) parameter->variable().written = false;
  double& weight = net.weight2.value.view().as<double>()[kHidden + 3];
  const double by_tape = net.weight2.grad().to_host<double>()[kHidden + 3];
  constexpr double kNudge = 1e-5;
  weight += kNudge;
  const double above = loss_of(net, batch);
  weight -= 2 * kNudge;
  const double below = loss_of(net, batch);
  weight += kNudge;
  const double by_nudge = (above - below) / (2 * kNudge);
  fmt::print("gradient of weight2[1][3]: tape {:+.9e}, nudge {:+.9e}, difference {:.1e}\n", by_tape, by_nudge,
             std::abs(by_tape - by_nudge));
}

using Clock = std::chrono::steady_clock;
double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::max(1, std::atoi(argv[1])) : 200;
  Context context(DeviceType::cpu, 1, DType::f64);  // f64, so that the nudge is exact enough to compare with
  const ContextScope scope(context);

  const auto dataset = synthetic_dataset({});
  Loader loader(*dataset, std::make_unique<TrainSampler>(dataset->size(), BatchSplit{.batch_per_rank = kBatch}, 0));
  Net net;
  check_one_gradient(net, to_device(loader.next(), dataset->info()));

  double forward_ms = 0;
  double backward_ms = 0;
  double update_ms = 0;
  for (int step = 1; step <= steps; ++step) {
    const DeviceBatch batch = to_device(loader.next(), dataset->info());

    const auto start = Clock::now();
    Tape tape;  // from here on every op is written down
    const Tensor logits = net.forward(batch.samples);
    const int correct = count_correct(logits, batch.labels).to_host<std::int32_t>()[0];
    const Tensor loss = softmax_cross_entropy(logits, batch.labels);

    const auto forward_done = Clock::now();
    tape.backward(loss);  // and read back in reverse

    const auto backward_done = Clock::now();
    for (Parameter* parameter : net.parameters()) {  // value += -learning_rate * gradient
      LOCKSTEP_DISPATCH(scale, context.exec(), parameter->grad(), -kLearningRate, GradView{parameter->value, true});
      parameter->variable().written = false;  // the next step's gradient replaces this one
    }
    const auto update_done = Clock::now();

    forward_ms += ms_between(start, forward_done);
    backward_ms += ms_between(forward_done, backward_done);
    update_ms += ms_between(backward_done, update_done);
    if (step == 1 || step % 50 == 0 || step == steps) {
      fmt::print("step {:4}: loss {:.4f}, {} of {} right\n", step, loss.to_host<double>()[0], correct, kBatch);
    }
  }
  fmt::print("a step: forward {:.2f} ms, backward {:.2f} ms ({:.1f}x forward), update {:.2f} ms\n", forward_ms / steps,
             backward_ms / steps, backward_ms / forward_ms, update_ms / steps);
  return 0;
}
