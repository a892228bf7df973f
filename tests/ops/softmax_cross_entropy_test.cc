#include "framework/ops/softmax_cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "framework/autograd/tape.h"
#include "framework/ops/elementwise.h"
#include "tests/support/random.h"

namespace lockstep::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The definition: mean over rows of -sum target log softmax.
double reference_loss(const std::vector<double>& logits, const std::vector<std::int32_t>& labels, std::size_t classes,
                      double smoothing) {
  double total = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    double normaliser = 0;
    for (std::size_t v = 0; v < classes; ++v) normaliser += std::exp(logits[row * classes + v]);
    for (std::size_t v = 0; v < classes; ++v) {
      const double target =
          (static_cast<std::size_t>(labels[row]) == v ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
      if (target > 0) total -= target * std::log(std::exp(logits[row * classes + v]) / normaliser);
    }
  }
  return total / static_cast<double>(labels.size());
}

double loss_of(const std::vector<double>& logits, const std::vector<std::int32_t>& labels, double smoothing = 0.0) {
  const auto rows = static_cast<std::int64_t>(labels.size());
  const auto count = static_cast<std::int64_t>(logits.size());
  return softmax_cross_entropy(Tensor::from_host<double>(logits, {rows, count / rows}),
                               Tensor::from_host<std::int32_t>(labels, {rows}), smoothing)
      .to_host<double>()[0];
}

std::string message(const Tensor& logits, const Tensor& labels, double smoothing = 0.0) {
  try {
    softmax_cross_entropy(logits, labels, smoothing);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(SoftmaxCrossEntropy, MatchesTheDefinition) {
  for (const auto& [rows, classes] : {std::pair{1, 1}, {1, 3}, {17, 10}, {129, 65}, {3, 1000}}) {
    const std::vector<double> logits = random_values(rows * classes, -5, 5);
    const std::vector<std::int32_t> labels = random_indices(rows, classes);
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      EXPECT_NEAR(loss_of(logits, labels, smoothing),
                  reference_loss(logits, labels, static_cast<std::size_t>(classes), smoothing), 1e-12)
          << rows << " x " << classes << ", label smoothing " << smoothing;
    }
  }
}

TEST(SoftmaxCrossEntropy, IsExactForLargeLogits) {
  // Both differ by 2 and 1 from the largest: log(1 + e^-1 + e^-2) apart from it.
  const double expected = 2 + std::log(1 + std::exp(-1.0) + std::exp(-2.0));
  EXPECT_NEAR(loss_of({5000, 5001, 5002}, {0}), expected, 1e-12);
  EXPECT_NEAR(loss_of({-5002, -5001, -5000}, {0}), expected, 1e-12);
  EXPECT_NEAR(loss_of({-1e5, 1e5}, {0}), 2e5, 1e-9);
  EXPECT_EQ(loss_of({-1e5, 1e5}, {1}), 0);
}

TEST(SoftmaxCrossEntropy, MinusInfinityTakesAClassOut) {
  EXPECT_NEAR(loss_of({1, -kInfinity, 2}, {0}), loss_of({1, 2}, {0}), 1e-15);
  EXPECT_EQ(loss_of({1, -kInfinity, 2}, {1}), kInfinity);
}

TEST(SoftmaxCrossEntropy, NanIsSeen) {
  for (const double bad : {kNan, kInfinity}) {
    EXPECT_TRUE(std::isnan(loss_of({1, bad, 2, 0, 0, 0}, {0, 2})));
    std::vector<double> logits(1000, 0.0);
    logits[999] = bad;
    EXPECT_TRUE(std::isnan(loss_of(logits, {3})));
  }
}

TEST(SoftmaxCrossEntropy, OfNoRowsIsZero) {
  EXPECT_EQ(
      softmax_cross_entropy(Tensor::empty({0, 10}, DType::f32), Tensor::empty({0}, DType::i32)).to_host<float>()[0], 0);
}

TEST(SoftmaxCrossEntropy, NamesTheRowAndTheLabelOutOfRange) {
  const Tensor logits = Tensor::zeros({3, 10}, DType::f32);
  for (const std::int32_t label : {-1, 10}) {
    const Tensor labels = Tensor::from_host<std::int32_t>(std::vector<std::int32_t>{0, 9, label}, {3});
    EXPECT_EQ(message(logits, labels),
              "softmax_cross_entropy: expected labels in [0, 10), got " + std::to_string(label) + " in row 2");
  }
}

TEST(SoftmaxCrossEntropy, RefusesWhatDoesNotFit) {
  const Tensor logits = Tensor::zeros({3, 10}, DType::f32);
  EXPECT_EQ(message(logits, Tensor::zeros({4}, DType::i32)),
            "softmax_cross_entropy: expected logits (N, V) and labels (N), got (3, 10) and (4)");
  EXPECT_EQ(message(Tensor::zeros({10}, DType::f32), Tensor::zeros({10}, DType::i32)),
            "softmax_cross_entropy: expected logits (N, V) and labels (N), got (10) and (10)");
  EXPECT_EQ(message(logits, Tensor::zeros({3}, DType::f32)),
            "softmax_cross_entropy: expected labels of type i32, got f32");
  EXPECT_EQ(message(logits, Tensor::zeros({3}, DType::i32), 1.5),
            "softmax_cross_entropy: expected label smoothing in [0, 1], got 1.5");
}

// An op that does nothing but tell the address of its output, and that of the gradient which backward brings.
struct Addresses {
  const void* output = nullptr;
  const void* gradient = nullptr;
};

Tensor observed(const Tensor& x, Addresses& addresses) {
  Tensor y = scale(x.detach(), 1.0);
  addresses.output = y.view().data;
  record("observed", {&x}, {&y}, [&addresses](Backward& backward) {
    addresses.gradient = backward.dy().view().data;
    backward.pass(0, backward.dy());
  });
  return y;
}

TEST(SoftmaxCrossEntropy, GradientTakesThePlaceOfLogitsThatAreHandedOver) {
  Parameter x("x", Tensor::from_host<double>(random_values(30, -1, 1), {3, 10}), false);
  Addresses addresses;
  Tape tape;
  Tensor logits = observed(x.value, addresses);
  tape.backward(softmax_cross_entropy(std::move(logits), Tensor::zeros({3}, DType::i32)));
  EXPECT_EQ(addresses.gradient, addresses.output);
}

TEST(SoftmaxCrossEntropy, LogitsThatTheCallerKeepsAreNotOverwritten) {
  Parameter x("x", Tensor::from_host<double>(random_values(30, -1, 1), {3, 10}), false);
  Addresses addresses;
  Tape tape;
  const Tensor logits = observed(x.value, addresses);
  tape.backward(softmax_cross_entropy(logits, Tensor::zeros({3}, DType::i32)));
  EXPECT_NE(addresses.gradient, addresses.output);
  EXPECT_EQ(logits.to_host<double>(), x.value.to_host<double>());
}

TEST(CountCorrect, CountsRowsWhoseLargestLogitIsAtTheLabel) {
  const std::vector<float> logits = random_values<float>(1000 * 17, -1, 1);
  const std::vector<std::int32_t> labels = random_indices(1000, 17, 1);
  std::int32_t expected = 0;
  for (std::size_t row = 0; row < 1000; ++row) {
    std::int32_t best = 0;
    for (std::int32_t v = 1; v < 17; ++v) {
      if (logits[row * 17 + static_cast<std::size_t>(v)] > logits[row * 17 + static_cast<std::size_t>(best)]) best = v;
    }
    if (best == labels[row]) ++expected;
  }
  const Tensor count =
      count_correct(Tensor::from_host<float>(logits, {1000, 17}), Tensor::from_host<std::int32_t>(labels, {1000}));
  EXPECT_EQ(count.shape(), Shape{});
  EXPECT_EQ(count.to_host<std::int32_t>()[0], expected);
}

TEST(CountCorrect, TakesTheFirstOfEqualLogits) {
  const Tensor logits = Tensor::from_host<double>(std::vector<double>{1, 2, 2, 0, 0, 0}, {2, 3});
  const auto count = [&](std::int32_t first, std::int32_t second) {
    const Tensor labels = Tensor::from_host<std::int32_t>(std::vector{first, second}, {2});
    return count_correct(logits, labels).to_host<std::int32_t>()[0];
  };
  EXPECT_EQ(count(1, 0), 2);
  EXPECT_EQ(count(2, 0), 1);
  EXPECT_EQ(count(2, 1), 0);
}

TEST(CountCorrect, OfNoRowsIsZero) {
  EXPECT_EQ(count_correct(Tensor::empty({0, 3}, DType::f32), Tensor::empty({0}, DType::i32)).to_host<std::int32_t>()[0],
            0);
}

}  // namespace
}  // namespace lockstep::testing
