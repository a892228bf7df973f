#include "framework/ops/pooling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/autograd/tape.h"
#include "framework/ops/reduction.h"
#include "tests/support/random.h"

namespace lockstep::testing {
namespace {

TEST(Pooling, MatchesTheDefinition) {
  struct Sizes {
    Shape x;
    Pool2dParams params;
    Shape y;
  };
  for (const auto& [xs, params, ys] :
       {Sizes{{2, 28, 28, 6}, {2, 2, 0}, {2, 14, 14, 6}}, Sizes{{2, 7, 9, 17}, {3, 2, 1}, {2, 4, 5, 17}},
        Sizes{{1, 6, 5, 3}, {2, 3, 1}, {1, 3, 2, 3}}}) {
    const std::vector<double> x = random_values(xs.numel(), -2, -1);  // negative: a padded zero must not win
    const Tensor tensor = Tensor::from_host<double>(x, xs);
    const Tensor largest = max_pool2d(tensor, params), mean = avg_pool2d(tensor, params);
    ASSERT_EQ(largest.shape(), ys);
    ASSERT_EQ(mean.shape(), ys);
    const std::vector<double> maxima = largest.to_host<double>(), means = mean.to_host<double>();
    for (std::int64_t at = 0; at < ys.numel(); ++at) {
      const std::int64_t c = at % ys[3], j = at / ys[3] % ys[2], i = at / ys[3] / ys[2] % ys[1];
      const std::int64_t n = at / ys[3] / ys[2] / ys[1];
      double max = -std::numeric_limits<double>::infinity(), sum = 0;
      for (std::int64_t row = i * params.stride - params.padding, p = 0; p < params.kernel; ++p, ++row) {
        for (std::int64_t column = j * params.stride - params.padding, q = 0; q < params.kernel; ++q, ++column) {
          if (row < 0 || row >= xs[1] || column < 0 || column >= xs[2]) continue;
          const double value = x[static_cast<std::size_t>(((n * xs[1] + row) * xs[2] + column) * xs[3] + c)];
          max = std::max(max, value);
          sum += value;
        }
      }
      ASSERT_EQ(maxima[static_cast<std::size_t>(at)], max) << xs.to_string() << " at " << at;
      ASSERT_NEAR(means[static_cast<std::size_t>(at)], sum / static_cast<double>(params.kernel * params.kernel), 1e-14);
    }
  }
}

TEST(Pooling, AdaptiveMeansAreThoseOfTheirWindows) {
  struct Sizes {
    Shape x;
    std::int64_t height, width;
  };
  for (const auto& [xs, height, width] :
       {Sizes{{2, 10, 14, 3}, 7, 7}, Sizes{{1, 5, 3, 17}, 4, 7}, Sizes{{2, 1, 1, 6}, 7, 7}}) {
    const std::vector<double> x = random_values(xs.numel(), -2, 2);
    const Tensor y = adaptive_avg_pool2d(Tensor::from_host<double>(x, xs), height, width);
    ASSERT_EQ(y.shape(), Shape({xs[0], height, width, xs[3]}));
    const std::vector<double> means = y.to_host<double>();
    for (std::int64_t at = 0; at < y.numel(); ++at) {
      const std::int64_t c = at % xs[3], j = at / xs[3] % width, i = at / xs[3] / width % height;
      const std::int64_t n = at / xs[3] / width / height;
      // A pixel belongs to a window if the two overlap when both are drawn on one line.
      double sum = 0, count = 0;
      for (std::int64_t row = 0; row < xs[1]; ++row) {
        if (row * height >= (i + 1) * xs[1] || (row + 1) * height <= i * xs[1]) continue;
        for (std::int64_t column = 0; column < xs[2]; ++column) {
          if (column * width >= (j + 1) * xs[2] || (column + 1) * width <= j * xs[2]) continue;
          sum += x[static_cast<std::size_t>(((n * xs[1] + row) * xs[2] + column) * xs[3] + c)];
          ++count;
        }
      }
      ASSERT_NEAR(means[static_cast<std::size_t>(at)], sum / count, 1e-14) << xs.to_string() << " at " << at;
    }
  }
}

std::vector<float> gradient_of_max(const std::vector<float>& values, const Shape& shape, const Pool2dParams& params) {
  Parameter x("x", Tensor::from_host<float>(values, shape), false);
  x.variable().grad = Tensor::zeros(shape, DType::f32);
  Tape tape;
  tape.backward(sum(max_pool2d(x.value, params)));
  return x.grad().to_host<float>();
}

TEST(Pooling, OfEqualsTheFirstGetsTheGradient) {
  EXPECT_EQ(gradient_of_max({5, 5, 5, 5}, {1, 2, 2, 1}, {2, 2, 0}), (std::vector<float>{1, 0, 0, 0}));
  EXPECT_EQ(gradient_of_max({0, 1, 0, 1}, {1, 2, 2, 1}, {2, 2, 0}), (std::vector<float>{0, 1, 0, 0}));
  // -infinity is an element like others, padding is not.
  const float lowest = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(gradient_of_max({lowest}, {1, 1, 1, 1}, {2, 1, 1}), std::vector<float>{4});
}

TEST(Pooling, ElementsOutsideEveryWindowGetNoGradient) {
  EXPECT_EQ(gradient_of_max({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 3, 3, 1}, {2, 2, 0}),
            (std::vector<float>{0, 0, 0, 0, 1, 0, 0, 0, 0}));
}

TEST(Pooling, ANanIsNotLost) {
  for (const std::size_t place : {0U, 1U, 3U}) {
    std::vector<float> x = {1, 2, 3, 4};
    x[place] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(max_pool2d(Tensor::from_host<float>(x, {1, 2, 2, 1}), {2, 2, 0}).to_host<float>()[0]));
  }
}

TEST(Pooling, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({1, 4, 4, 2}, DType::f32);
  for (const auto pool : {max_pool2d, avg_pool2d}) {
    EXPECT_THROW(pool(Tensor::zeros({4, 4, 2}, DType::f32), {2, 2, 0}), std::invalid_argument);
    EXPECT_THROW(pool(x, {0, 1, 0}), std::invalid_argument);
    EXPECT_THROW(pool(x, {2, 0, 0}), std::invalid_argument);
    EXPECT_THROW(pool(x, {2, 2, 2}), std::invalid_argument);
    EXPECT_THROW(pool(x, {5, 1, 0}), std::invalid_argument);
  }
  EXPECT_THROW(adaptive_avg_pool2d(Tensor::zeros({4, 4, 2}, DType::f32), 2, 2), std::invalid_argument);
  EXPECT_THROW(adaptive_avg_pool2d(x, 0, 2), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::testing
