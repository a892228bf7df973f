#include "framework/ops/dropout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/reduction.h"
#include "tests/support/random.h"

namespace lockstep::testing {
namespace {

class DropoutTest : public ::testing::Test {
 protected:
  DropoutTest() { context_.random.seed = test_seed(); }

  // 1 where an element of `samples` rows of `size` was kept.
  template <class T = double>
  std::vector<T> mask(std::int64_t samples, std::int64_t size, double p = 0.5, std::uint32_t op = 0) {
    const Tensor ones =
        Tensor::from_host<T>(std::vector<T>(static_cast<std::size_t>(samples * size), T(1)), {samples, size});
    std::vector<T> kept = dropout(ones, p, op).template to_host<T>();
    for (T& value : kept) value = value != 0 ? T(1) : T(0);
    return kept;
  }

  // Share of elements in which two masks of one probability agree. 1/2 for independent masks of p = 1/2.
  static double agreement(const std::vector<double>& a, const std::vector<double>& b) {
    double equal = 0;
    for (std::size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i] ? 1 : 0;
    return equal / static_cast<double>(a.size());
  }

  Context context_{DeviceType::cpu, 2};
  ContextScope scope_{context_};
};

TEST_F(DropoutTest, KeepsTheRightShareAndScalesIt) {
  const std::int64_t count = 200'000;
  for (const double p : {0.1, 0.5, 0.9}) {
    const std::vector<double> x = random_values(count, 1, 2);
    const std::vector<double> y = dropout(Tensor::from_host<double>(x, {20, count / 20}), p, 0).to_host<double>();
    double kept = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (y[i] == 0) continue;
      ++kept;
      ASSERT_DOUBLE_EQ(y[i], x[i] / (1 - p));
    }
    // Six standard deviations of the share.
    EXPECT_NEAR(kept / count, 1 - p, 6 * std::sqrt(p * (1 - p) / count)) << "p = " << p;
  }
}

TEST_F(DropoutTest, MaskDependsOnSeedStepOpAndSample) {
  const std::int64_t size = 40'000;
  const std::vector<double> first = mask(1, size);
  const double bound = 6 * 0.5 / std::sqrt(static_cast<double>(size));
  EXPECT_EQ(mask(1, size), first);
  EXPECT_NEAR(agreement(mask(1, size, 0.5, 1), first), 0.5, bound);
  ++context_.random.step;
  EXPECT_NEAR(agreement(mask(1, size), first), 0.5, bound);
  --context_.random.step;
  ++context_.random.sample_offset;
  EXPECT_NEAR(agreement(mask(1, size), first), 0.5, bound);
  --context_.random.sample_offset;
  ++context_.random.seed;
  EXPECT_NEAR(agreement(mask(1, size), first), 0.5, bound);
}

TEST_F(DropoutTest, ElementsOfASampleAreIndependent) {
  // Neighbours come from one block of the generator, elements 256 apart from different units of work.
  const std::int64_t size = 40'000;
  const std::vector<double> whole = mask(1, size);
  for (const std::int64_t distance : {1, 2, 3, 4, 256}) {
    const std::vector<double> head(whole.begin(), whole.end() - distance), tail(whole.begin() + distance, whole.end());
    EXPECT_NEAR(agreement(head, tail), 0.5, 6 * 0.5 / std::sqrt(static_cast<double>(size))) << distance;
  }
}

TEST_F(DropoutTest, MaskDoesNotDependOnHowTheBatchIsSpread) {
  for (const std::int64_t size : {1, 3, 17, 300}) {
    context_.random.sample_offset = 100;
    const std::vector<double> whole = mask(12, size);
    for (const std::int64_t share : {1, 3, 6}) {
      std::vector<double> joined;
      for (std::int64_t begin = 0; begin < 12; begin += share) {
        context_.random.sample_offset = 100 + begin;
        const std::vector<double> part = mask(share, size);
        joined.insert(joined.end(), part.begin(), part.end());
      }
      EXPECT_EQ(joined, whole) << "samples of " << size << ", " << share << " a rank";
    }
  }
}

TEST_F(DropoutTest, BothTypesGetTheSameMask) {
  const std::vector<float> single = mask<float>(7, 129, 0.3);
  EXPECT_EQ(std::vector<double>(single.begin(), single.end()), mask(7, 129, 0.3));
}

TEST_F(DropoutTest, BackwardAppliesTheMaskOfForward) {
  const std::int64_t size = 1000;
  Parameter x("x", Tensor::from_host<double>(random_values(3 * size, 1, 2), {3, size}), false);
  Tape tape;
  const Tensor y = dropout(x.value, 0.4, 5);
  const std::vector<double> forward = y.to_host<double>();
  tape.backward(sum(y));
  const std::vector<double> gradient = x.grad().to_host<double>();
  for (std::size_t i = 0; i < gradient.size(); ++i) ASSERT_DOUBLE_EQ(gradient[i], forward[i] == 0 ? 0 : 1 / 0.6);
}

TEST_F(DropoutTest, OfNothingReturnsTheTensorItself) {
  const Tensor x = Tensor::zeros({3}, DType::f32);
  EXPECT_EQ(dropout(x, 0, 0).view().data, x.view().data);
}

TEST_F(DropoutTest, RefusesAProbabilityOutOfRange) {
  const Tensor x = Tensor::zeros({3}, DType::f32);
  for (const double p : {-0.1, 1.0, 1.5, std::nan("")}) EXPECT_THROW(dropout(x, p, 0), std::invalid_argument) << p;
}

}  // namespace
}  // namespace lockstep::testing
