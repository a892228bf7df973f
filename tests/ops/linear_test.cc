#include "framework/ops/linear.h"

#include <gtest/gtest.h>

#include "tests/support/random.h"

namespace lockstep::testing {
namespace {

TEST(Linear, MatchesTheDefinition) {
  struct Sizes {
    std::int64_t rows, inputs, outputs;
  };
  // Beyond one block of depth and one panel of columns, and within one tile.
  for (const auto& [rows, inputs, outputs] : {Sizes{1, 1, 1}, {64, 1300, 70}, {13, 33, 200}, {5, 3, 10}}) {
    const std::vector<double> x = random_values(rows * inputs, -1, 1, 0);
    const std::vector<double> weight = random_values(outputs * inputs, -1, 1, 1);
    const std::vector<double> bias = random_values(outputs, -1, 1, 2);
    const std::vector<double> y =
        linear(Tensor::from_host<double>(x, {rows, inputs}), Tensor::from_host<double>(weight, {outputs, inputs}),
               Tensor::from_host<double>(bias, {outputs}))
            .to_host<double>();
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t o = 0; o < outputs; ++o) {
        double sum = bias[static_cast<std::size_t>(o)];
        for (std::int64_t c = 0; c < inputs; ++c) {
          sum += x[static_cast<std::size_t>(n * inputs + c)] * weight[static_cast<std::size_t>(o * inputs + c)];
        }
        ASSERT_NEAR(y[static_cast<std::size_t>(n * outputs + o)], sum, 1e-11)
            << rows << ", " << inputs << ", " << outputs;
      }
    }
  }
}

TEST(Linear, FlattensLeadingDimensions) {
  const Tensor weight = Tensor::zeros({4, 5}, DType::f32);
  EXPECT_EQ(linear(Tensor::zeros({2, 3, 5}, DType::f32), weight).shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(linear(Tensor::zeros({5}, DType::f32), weight).shape(), Shape{4});
}

TEST(Linear, NothingSumsToTheBias) {
  const std::vector<float> bias = {1, -2, 3};
  const Tensor y =
      linear(Tensor::zeros({2, 0}, DType::f32), Tensor::zeros({3, 0}, DType::f32), Tensor::from_host<float>(bias, {3}));
  EXPECT_EQ(y.to_host<float>(), (std::vector<float>{1, -2, 3, 1, -2, 3}));
}

TEST(Linear, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({3, 5}, DType::f32);
  const Tensor weight = Tensor::zeros({4, 5}, DType::f32);
  EXPECT_THROW(linear(x, Tensor::zeros({5, 4}, DType::f32)), std::invalid_argument);
  EXPECT_THROW(linear(x, Tensor::zeros({4, 5}, DType::f64)), std::invalid_argument);
  EXPECT_THROW(linear(x, weight, Tensor::zeros({5}, DType::f32)), std::invalid_argument);
  EXPECT_THROW(linear(x, weight, Tensor::zeros({4}, DType::f64)), std::invalid_argument);
  EXPECT_THROW(linear(Tensor::zeros({}, DType::f32), weight), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::testing
