#include "framework/ops/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/random.h"

namespace lockstep::testing {
namespace {

// The definition, row by row.
std::vector<double> reference(const std::vector<double>& x, const std::vector<double>& gamma,
                              const std::vector<double>& beta, double eps) {
  const std::size_t columns = gamma.size();
  std::vector<double> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += columns) {
    double mean = 0, variance = 0;
    for (std::size_t c = 0; c < columns; ++c) mean += x[row + c] / static_cast<double>(columns);
    for (std::size_t c = 0; c < columns; ++c) variance += std::pow(x[row + c] - mean, 2) / static_cast<double>(columns);
    for (std::size_t c = 0; c < columns; ++c) {
      y[row + c] = (x[row + c] - mean) / std::sqrt(variance + eps) * gamma[c] + beta[c];
    }
  }
  return y;
}

TEST(LayerNorm, MatchesTheDefinition) {
  for (const auto& [rows, columns] : {std::pair{1, 1}, {1, 3}, {17, 129}, {129, 17}, {3, 1000}}) {
    const std::vector<double> x = random_values(rows * columns, -2, 3, 0);
    const std::vector<double> gamma = random_values(columns, -1, 1, 1);
    const std::vector<double> beta = random_values(columns, -1, 1, 2);
    for (const double eps : {1e-5, 0.5}) {
      const std::vector<double> expected = reference(x, gamma, beta, eps);
      const std::vector<double> y =
          layer_norm(Tensor::from_host<double>(x, {rows, columns}), Tensor::from_host<double>(gamma, {columns}),
                     Tensor::from_host<double>(beta, {columns}), eps)
              .to_host<double>();
      for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 1e-11) << rows << " x " << columns;
    }
  }
}

TEST(LayerNorm, ALargeMeanCostsNoPrecision) {
  // In f32, the mean of squares minus the square of the mean would be noise here.
  const std::int64_t columns = 768;
  std::vector<float> x = random_values<float>(columns, -1, 1);
  for (float& value : x) value += 3000;
  const std::vector<double> exact =
      reference({x.begin(), x.end()}, std::vector<double>(columns, 1), std::vector<double>(columns, 0), 1e-5);
  Tensor ones = Tensor::from_host<float>(std::vector<float>(columns, 1), {columns});
  const std::vector<float> y =
      layer_norm(Tensor::from_host<float>(x, {1, columns}), ones, Tensor::zeros({columns}, DType::f32))
          .to_host<float>();
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(static_cast<double>(y[i]), exact[i], 1e-3);
}

TEST(LayerNorm, KeepsTheShapeOfLeadingDimensions) {
  const Tensor vector = Tensor::zeros({5}, DType::f32);
  EXPECT_EQ(layer_norm(Tensor::zeros({2, 3, 5}, DType::f32), vector, vector).shape(), (Shape{2, 3, 5}));
  EXPECT_EQ(layer_norm(Tensor::zeros({5}, DType::f32), vector, vector).shape(), Shape{5});
}

TEST(LayerNorm, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({3, 5}, DType::f32);
  const Tensor five = Tensor::zeros({5}, DType::f32);
  EXPECT_THROW(layer_norm(x, Tensor::zeros({3}, DType::f32), five), std::invalid_argument);
  EXPECT_THROW(layer_norm(x, five, Tensor::zeros({3}, DType::f32)), std::invalid_argument);
  EXPECT_THROW(layer_norm(x, five, Tensor::zeros({5}, DType::f64)), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::testing
