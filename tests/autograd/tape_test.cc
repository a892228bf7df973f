#include "framework/autograd/tape.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "framework/core/allocator.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/reduction.h"

namespace lockstep {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor vector_of(const std::vector<double>& values) {
  return Tensor::from_host<double>(values, {static_cast<std::int64_t>(values.size())});
}

// A parameter whose gradient holds NaN, to be overwritten.
std::unique_ptr<Parameter> parameter(const std::string& name, const std::vector<double>& values) {
  auto result = std::make_unique<Parameter>(name, vector_of(values), false);
  result->variable().grad = vector_of(std::vector<double>(values.size(), kNan));
  return result;
}

std::vector<double> grad(const std::unique_ptr<Parameter>& p) { return p->grad().to_host<double>(); }

// The identity; calls `in_backward` with the gradient when backward comes by.
Tensor probe(const Tensor& x, std::function<void(const Tensor& dy)> in_backward) {
  Tensor y = scale(x.detach(), 1.0);
  record("probe", {&x}, {&y}, [in_backward = std::move(in_backward)](Backward& backward) {
    in_backward(backward.dy());
    backward.pass(0, backward.dy());
  });
  return y;
}

// Two outputs, 2x and 3x; counts how often each had a gradient.
std::pair<Tensor, Tensor> two_outputs(const Tensor& x, std::pair<int, int>& had_gradient) {
  Tensor twice = scale(x.detach(), 2.0), thrice = scale(x.detach(), 3.0);
  record("two_outputs", {&x}, {&twice, &thrice}, [&had_gradient](Backward& backward) {
    Tensor dx;
    if (backward.dy(0).defined()) {
      ++had_gradient.first;
      dx = scale(backward.dy(0), 2.0);
    }
    if (backward.dy(1).defined()) {
      ++had_gradient.second;
      const Tensor more = scale(backward.dy(1), 3.0);
      dx = dx.defined() ? add(dx, more) : more;
    }
    backward.pass(0, dx);
  });
  return {twice, thrice};
}

TEST(Tape, GradientsAreThoseOfTheLossTimesTheSeed) {
  const auto w = parameter("w", {1, 2, 3});
  Tape tape;
  tape.backward(sum(scale(w->value, 3.0)), 0.5);
  EXPECT_EQ(grad(w), (std::vector<double>{1.5, 1.5, 1.5}));
}

TEST(Tape, FirstWriteOfAStepOverwritesLaterOnesAdd) {
  const auto w = parameter("w", {1, 2});
  for (int micro_step = 0; micro_step < 3; ++micro_step) {
    Tape tape;
    tape.backward(sum(multiply(w->value, w->value)));
  }
  EXPECT_EQ(grad(w), (std::vector<double>{6, 12}));
  w->variable().written = false;  // as a new step does
  Tape tape;
  tape.backward(sum(w->value));
  EXPECT_EQ(grad(w), (std::vector<double>{1, 1}));
}

TEST(Tape, TiedParameterGetsTheSumOfItsGradients) {
  const auto w = parameter("w", {1, 2});
  const Tensor x = vector_of({5, 7});
  Tape tape;
  const Tensor hidden = multiply(w->value, x);     // w x
  tape.backward(sum(multiply(hidden, w->value)));  // w^2 x
  EXPECT_EQ(grad(w), (std::vector<double>{10, 28}));
}

TEST(Tape, TwoForwardsBeforeOneBackward) {
  const auto w = parameter("w", {2, 3});
  const auto model = [&](const Tensor& x) { return sum(multiply(multiply(w->value, x), w->value)); };
  Tape tape;
  const Tensor first = model(vector_of({1, 10}));
  const Tensor second = model(vector_of({100, 1000}));
  tape.backward(add(first, second));
  EXPECT_EQ(grad(w), (std::vector<double>{4 * 101, 6 * 1010}));
}

TEST(Tape, OnlyTheLossThatIsAskedForCounts) {
  const auto w = parameter("w", {2});
  Tape tape;
  const Tensor first = sum(scale(w->value, 3.0));
  const Tensor second = sum(scale(w->value, 5.0));
  tape.backward(first);
  EXPECT_EQ(grad(w), std::vector<double>{3});
}

TEST(Tape, DeadBranchesDoNotRun) {
  const auto used = parameter("used", {1, 2});
  const auto dead = parameter("dead", {3, 4});
  bool ran = false;
  Tape tape;
  const Tensor h = scale(used->value, 2.0);
  const Tensor unused = multiply(probe(h, [&](const Tensor&) { ran = true; }), dead->value);
  tape.backward(sum(h));
  EXPECT_FALSE(ran);
  EXPECT_EQ(grad(used), (std::vector<double>{2, 2}));
  EXPECT_FALSE(dead->variable().written);
}

TEST(Tape, UnusedOutputsHaveNoGradient) {
  for (const bool first : {false, true}) {
    for (const bool second : {false, true}) {
      if (!first && !second) continue;
      const auto w = parameter("w", {1, 2});
      std::pair<int, int> had_gradient;
      Tape tape;
      const auto [twice, thrice] = two_outputs(w->value, had_gradient);
      tape.backward(sum(!first ? thrice : !second ? twice : add(twice, thrice)));
      EXPECT_EQ(had_gradient, std::pair(first ? 1 : 0, second ? 1 : 0));
      const double expected = (first ? 2 : 0) + (second ? 3 : 0);
      EXPECT_EQ(grad(w), (std::vector<double>{expected, expected}));
    }
  }
}

TEST(Tape, AGradientPassedToSeveralInputsIsNotChangedThroughOneOfThem) {
  const auto p = parameter("p", {1, 2});
  const auto q = parameter("q", {3, 4});
  Tape tape;
  const Tensor a = scale(p->value, 1.0), b = scale(q->value, 1.0);
  const Tensor again = scale(a, 2.0);  // in backward it comes after a and b have been given one gradient between them
  tape.backward(sum(add(again, add(a, b))));
  EXPECT_EQ(grad(p), (std::vector<double>{3, 3}));
  EXPECT_EQ(grad(q), (std::vector<double>{1, 1}));
}

TEST(Tape, ReshapedTensorsShareTheirGradient) {
  const auto w = parameter("w", {1, 2, 3, 4});
  Shape seen;
  Tape tape;
  const Tensor h = probe(w->value, [&](const Tensor& dy) { seen = dy.shape(); });
  const Tensor square = h.reshape({2, 2});
  tape.backward(add(sum(multiply(square, square)), sum(h)).reshape({1, 1}));
  EXPECT_EQ(grad(w), (std::vector<double>{3, 5, 7, 9}));
  EXPECT_EQ(seen, Shape{4});  // the shape that the op gave it, not the reader's
}

TEST(Tape, SavedTensorsAreFreedWhileBackwardRuns) {
  // A chain of squares, each of which saves its input; what is in use falls from one square to the one before it.
  constexpr std::int64_t kSize = 10'000, kBytes = kSize * 8;
  constexpr int kLength = 8;
  const CachingAllocator& allocator = device_allocator(DeviceType::cpu);
  const auto w = parameter("w", std::vector<double>(kSize, 1.0));
  std::vector<std::size_t> in_use;
  Tape tape;
  {
    Tensor h = w->value;
    for (int i = 0; i < kLength; ++i) {
      h = probe(h, [&](const Tensor&) { in_use.push_back(allocator.stats().bytes_in_use); });
      h = multiply(h, h);
    }
    tape.backward(sum(h));
  }
  ASSERT_EQ(in_use.size(), static_cast<std::size_t>(kLength));
  for (int i = 1; i < kLength; ++i) {
    EXPECT_LE(in_use[static_cast<std::size_t>(i)] + kBytes, in_use[static_cast<std::size_t>(i - 1)]) << "square " << i;
  }
}

TEST(Tape, NothingIsRecordedWithoutATapeOrAParameter) {
  const auto w = parameter("w", {1});
  EXPECT_EQ(scale(w->value, 2.0).variable(), nullptr);
  Tape tape;
  EXPECT_EQ(scale(vector_of({1}), 2.0).variable(), nullptr);
  EXPECT_EQ(scale(w->value.detach(), 2.0).variable(), nullptr);
  EXPECT_NE(scale(w->value, 2.0).variable(), nullptr);
}

TEST(Tape, KnowsWhatIsReadWithoutAGradient) {
  const auto w = parameter("w", {1, 2});
  const auto reads = [&](const std::function<Tensor()>& forward) {
    Tape tape;
    const Tensor kept = forward();
    return tape.reads_without_gradient(w->value);
  };
  EXPECT_FALSE(reads([&] { return multiply(w->value, w->value); }));
  EXPECT_FALSE(reads([&] { return multiply(w->value, vector_of({3, 4})); }));
  EXPECT_FALSE(reads([&] { return w->value.detach(); }));
  EXPECT_TRUE(reads([&] { return multiply(w->value, w->value.detach()); }));
  const auto x = parameter("x", {5});
  EXPECT_TRUE(reads([&] { return multiply(x->value, w->value.detach().slice(1, 2)); }));
}

TEST(Tape, AnInnerTapeGivesWayToTheOuterOne) {
  EXPECT_EQ(Tape::current(), nullptr);
  {
    Tape outer;
    {
      Tape inner;
      EXPECT_EQ(Tape::current(), &inner);
    }
    EXPECT_EQ(Tape::current(), &outer);
  }
  EXPECT_EQ(Tape::current(), nullptr);
}

TEST(Tape, RefusesALossThatIsNoScalarOrDependsOnNothing) {
  const auto w = parameter("w", {1, 2});
  Tape tape;
  EXPECT_THROW(tape.backward(scale(w->value, 2.0)), std::invalid_argument);
  EXPECT_THROW(tape.backward(sum(vector_of({1, 2}))), std::invalid_argument);
}

TEST(Tape, NamesAnOpThatLeavesAGradientUnwritten) {
  const auto w = parameter("w", {1, 2});
  Tape tape;
  Tensor y = sum(w->value.detach());
  record("forgetful", {&w->value}, {&y}, [](Backward&) {});
  try {
    tape.backward(y);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::logic_error& error) {
    EXPECT_EQ(std::string(error.what()), "forgetful: backward left a gradient unwritten");
  }
}

// An op that overwrites its input in backward, as softmax cross-entropy does.
Tensor consume(Tensor x) {
  Tensor y = sum(x.detach());
  record_consuming("consume", x, &y, [](Backward&) {});
  return y;
}

TEST(RecordConsuming, RefusesAnEarlierReader) {
  const auto w = parameter("w", {1, 2});
  Tape tape;
  const Tensor h = scale(w->value, 2.0);
  const Tensor reader = scale(h.reshape({1, 2}), 3.0);
  EXPECT_THROW(consume(h), std::invalid_argument);
}

TEST(RecordConsuming, RefusesALaterReader) {
  const auto w = parameter("w", {1, 2});
  Tape tape;
  const Tensor h = scale(w->value, 2.0);
  consume(h);
  EXPECT_THROW(scale(h, 3.0), std::invalid_argument);
  EXPECT_THROW(scale(h.reshape({2, 1}), 3.0), std::invalid_argument);
  EXPECT_THROW(consume(h), std::invalid_argument);
  EXPECT_NO_THROW(scale(h.detach(), 3.0));
}

TEST(RecordConsuming, RefusesAParameter) {
  const auto w = parameter("w", {1, 2});
  Tape tape;
  EXPECT_THROW(consume(w->value), std::invalid_argument);
}

TEST(RecordConsuming, AllowsAnythingThatIsNotRecorded) {
  const auto w = parameter("w", {1, 2});
  const Tensor h = scale(w->value, 2.0);
  consume(h);
  EXPECT_NO_THROW(scale(h, 3.0));
}

}  // namespace
}  // namespace lockstep
