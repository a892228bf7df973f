#include "framework/ops/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "tests/support/random.h"

namespace lockstep::testing {
namespace {

double gelu_erf_reference(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }

double gelu_tanh_reference(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

template <class T>
void expect_elementwise(Tensor op(const Tensor&), double reference(double), double tolerance) {
  const std::vector<T> x = random_values<T>(1000, -8, 8);
  const std::vector<T> y = op(Tensor::from_host<T>(x, {1000})).template to_host<T>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(y[i]), reference(static_cast<double>(x[i])), tolerance) << "x = " << x[i];
  }
}

TEST(Activation, ReluIsTheMaximumWithZero) {
  const auto reference = [](double x) { return x > 0 ? x : 0; };
  expect_elementwise<double>(relu, reference, 0);
  expect_elementwise<float>(relu, reference, 0);
}

TEST(Activation, GeluErfMatchesTheErrorFunction) {
  expect_elementwise<double>(gelu_erf, gelu_erf_reference, 1e-14);
  expect_elementwise<float>(gelu_erf, gelu_erf_reference, 2e-6);
}

TEST(Activation, GeluTanhMatchesTheHyperbolicTangent) {
  expect_elementwise<double>(gelu_tanh, gelu_tanh_reference, 1e-14);
  expect_elementwise<float>(gelu_tanh, gelu_tanh_reference, 2e-6);
}

TEST(Activation, FarFromZeroTheyAreTheIdentityOrZero) {
  for (Tensor (*op)(const Tensor&) : {relu, gelu_erf, gelu_tanh}) {
    const std::vector<float> x = {-1e4F, -100, -20, 0, 20, 100, 1e4F};
    const std::vector<float> y = op(Tensor::from_host<float>(x, {7})).to_host<float>();
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], std::max(x[i], 0.0F), 1e-6F) << "x = " << x[i];
  }
}

TEST(Activation, NanStaysNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (Tensor (*op)(const Tensor&) : {relu, gelu_erf, gelu_tanh}) {
    EXPECT_TRUE(std::isnan(op(Tensor::from_host<double>(std::vector{nan}, {1})).to_host<double>()[0]));
    const std::vector<float> x(100, static_cast<float>(nan));
    for (const float y : op(Tensor::from_host<float>(x, {100})).to_host<float>()) EXPECT_TRUE(std::isnan(y));
  }
}

}  // namespace
}  // namespace lockstep::testing
