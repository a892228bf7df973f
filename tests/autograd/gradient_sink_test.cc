// What a GradientSink is told, on which the buckets of data parallelism rely.
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "framework/autograd/tape.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/embedding.h"
#include "framework/ops/layer_norm.h"
#include "framework/ops/reduction.h"
#include "tests/support/random.h"

namespace lockstep {
namespace {

using Names = std::vector<std::string>;

// Notes what it is told, and what each gradient is when it is said to be complete.
class Recorder : public GradientSink {
 public:
  void begin(std::span<Parameter* const> expected) override {
    ++begun;
    for (const Parameter* parameter : expected) announced.push_back(parameter->name);
    EXPECT_TRUE(finished.empty());
  }
  void ready(Parameter& parameter) override {
    finished.push_back(parameter.name);
    complete[parameter.name] = parameter.grad().to_host<double>();
  }

  int begun = 0;
  Names announced, finished;
  std::map<std::string, std::vector<double>> complete;
};

class GradientSinkTest : public ::testing::Test {
 protected:
  Parameter& parameter(const std::string& name, const Shape& shape) {
    const std::vector<double> values = testing::random_values(shape.numel(), -1, 1, parameters_.size());
    parameters_.push_back(std::make_unique<Parameter>(name, Tensor::from_host<double>(values, shape), false));
    return *parameters_.back();
  }

  // Runs backward and checks what holds for every sink.
  Names run(Tape& tape, const Tensor& loss) {
    Names order;
    for (const Parameter* p : tape.gradient_order(loss)) order.push_back(p->name);
    Recorder recorder;
    tape.backward(loss, 1.0, &recorder);
    EXPECT_EQ(recorder.begun, 1);
    EXPECT_EQ(recorder.announced, order);
    EXPECT_EQ(recorder.finished, order);
    for (const auto& p : parameters_) {
      if (recorder.complete.contains(p->name)) {
        EXPECT_EQ(recorder.complete[p->name], p->grad().to_host<double>()) << p->name << " changed after it was ready";
      }
      EXPECT_EQ(p->variable().owed_writes, 0);
      p->variable().written = false;
    }
    return order;
  }

  std::vector<std::unique_ptr<Parameter>> parameters_;
};

TEST_F(GradientSinkTest, ParametersAreReadyFromTheLastLayerToTheFirst) {
  Parameter& a = parameter("a", {3});
  Parameter& b = parameter("b", {3});
  Parameter& c = parameter("c", {3});
  Tape tape;
  const Tensor loss = sum(multiply(multiply(scale(a.value, 2.0), b.value), c.value));
  EXPECT_EQ(run(tape, loss), (Names{"c", "b", "a"}));
}

TEST_F(GradientSinkTest, AnOpOfSeveralParametersFinishesThemInItsOwnOrder) {
  Parameter& x = parameter("x", {5, 3});
  Parameter& gamma = parameter("gamma", {3});
  Parameter& beta = parameter("beta", {3});
  Tape tape;
  const Tensor loss = sum(layer_norm(x.value, gamma.value, beta.value));
  EXPECT_EQ(run(tape, loss), (Names{"x", "gamma", "beta"}));
}

TEST_F(GradientSinkTest, ATiedParameterIsReadyOnceAfterItsLastWrite) {
  // As input and output embedding: the first op of forward is the last to write in backward.
  Parameter& table = parameter("table", {4, 3});
  Parameter& middle = parameter("middle", {4, 3});
  const Tensor indices = Tensor::from_host<std::int32_t>(std::vector<std::int32_t>{0, 3, 3, 1}, {4});
  Tape tape;
  const Tensor h = multiply(embedding(table.value, indices), middle.value);
  EXPECT_EQ(run(tape, sum(multiply(h, table.value))), (Names{"middle", "table"}));
}

TEST_F(GradientSinkTest, AParameterReadTwiceByOneOpIsReadyOnce) {
  Parameter& w = parameter("w", {3});
  Tape tape;
  EXPECT_EQ(run(tape, sum(multiply(w.value, w.value))), Names{"w"});
}

TEST_F(GradientSinkTest, ParametersOfDeadBranchesAreNotAnnounced) {
  Parameter& used = parameter("used", {3});
  Parameter& dead = parameter("dead", {3});
  parameter("never_read", {3});
  Tape tape;
  const Tensor h = scale(used.value, 2.0);
  const Tensor branch = multiply(h, dead.value);
  EXPECT_EQ(run(tape, sum(h)), Names{"used"});
}

TEST_F(GradientSinkTest, TwoForwardsBeforeOneBackwardFinishEachParameterOnce) {
  Parameter& a = parameter("a", {3});
  Parameter& b = parameter("b", {3});
  const auto model = [&] { return sum(multiply(scale(a.value, 2.0), b.value)); };
  Tape tape;
  const Tensor first = model();
  const Tensor second = model();
  EXPECT_EQ(run(tape, add(first, second)), (Names{"b", "a"}));
}

TEST_F(GradientSinkTest, EveryStepIsToldTheSame) {
  Parameter& a = parameter("a", {3});
  Parameter& b = parameter("b", {3});
  for (int step = 0; step < 3; ++step) {
    Tape tape;
    const Tensor loss = sum(multiply(scale(a.value, 2.0), b.value));
    EXPECT_EQ(run(tape, loss), (Names{"b", "a"}));
  }
}

}  // namespace
}  // namespace lockstep
