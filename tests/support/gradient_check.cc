#include "tests/support/gradient_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/support/op_run.h"

namespace lockstep::testing {
namespace {

constexpr double kStep = 1e-4;  // twice it is well within the distance that inputs keep from kinks
constexpr double kSmallest = 1e-3;
constexpr double kSmallestF32 = 0.05;
constexpr std::size_t kElements = 48;  // of an input, that are checked one by one

double largest(const std::vector<double>& values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

// Keeps the worst of the errors it is shown. A NaN is worse than any number.
void compare(CheckReport& report, double expected, double got, double scale, const std::string& where) {
  const double denominator = std::max({std::abs(expected), std::abs(got), scale});
  double error = std::abs(expected - got) / denominator;
  if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
  ++report.checks;
  if (error > report.worst) {
    report.worst = error;
    report.where = fmt::format("{}: expected {}, got {}", where, expected, got);
  }
}

// Derivative of the loss along `direction` (one vector for each input).
double difference_quotient(const OpCase& op_case, const OpValues& values,
                           const std::vector<std::vector<double>>& direction) {
  const auto output_at = [&](double distance) {
    OpValues moved = values;
    for (std::size_t i = 0; i < moved.inputs.size(); ++i) {
      for (std::size_t k = 0; k < moved.inputs[i].size(); ++k) moved.inputs[i][k] += distance * direction[i][k];
    }
    return run_forward(op_case, moved, DType::f64);
  };
  const std::vector<double> near[] = {output_at(-kStep), output_at(kStep)};
  const std::vector<double> far[] = {output_at(-2 * kStep), output_at(2 * kStep)};
  const std::vector<double> weights = values.weights(static_cast<std::int64_t>(near[0].size()));
  // Outputs are subtracted one by one, before they are added up: rounding then grows with an output, not with the loss.
  double derivative = 0;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    derivative += weights[k] * (8 * (near[1][k] - near[0][k]) - (far[1][k] - far[0][k])) / (12 * kStep);
  }
  return derivative;
}

}  // namespace

CheckReport check_gradients(const OpCase& op_case, std::uint64_t seed) {
  const OpValues values = draw_values(op_case, seed);
  std::mt19937_64 random(values.weight_seed + 1);
  std::uniform_real_distribution<double> magnitude(0.5, 1), sign(-1, 1);

  std::vector<std::vector<double>> direction, nothing, initial;
  for (const std::vector<double>& input : values.inputs) {
    nothing.emplace_back(input.size(), 0.0);
    for (auto* drawn : {&direction, &initial}) {
      drawn->emplace_back(input.size());
      for (double& value : drawn->back()) value = std::copysign(magnitude(random), sign(random));
    }
  }
  const std::vector<std::vector<double>> overwritten = run_backward(op_case, values, DType::f64).gradients;
  const std::vector<std::vector<double>> added = run_backward(op_case, values, DType::f64, &initial).gradients;

  CheckReport report;
  double directional = 0;
  for (std::size_t i = 0; i < values.inputs.size(); ++i) {
    const std::vector<double>& gradient = overwritten[i];
    const double scale = std::clamp(largest(gradient), kSmallest, 1.0);
    std::vector<std::size_t> elements(gradient.size());
    std::iota(elements.begin(), elements.end(), 0);
    for (const std::size_t k : elements) {
      compare(report, gradient[k], added[i][k] - initial[i][k], scale,
              fmt::format("input {}, element {}, added instead of overwritten", i, k));
      directional += gradient[k] * direction[i][k];
    }
    std::shuffle(elements.begin(), elements.end(), random);
    elements.resize(std::min(elements.size(), kElements));
    for (const std::size_t k : elements) {
      nothing[i][k] = 1;
      compare(report, difference_quotient(op_case, values, nothing), gradient[k], scale,
              fmt::format("input {}, element {}", i, k));
      nothing[i][k] = 0;
    }
  }
  compare(report, difference_quotient(op_case, values, direction), directional, 1.0, "along a random direction");
  return report;
}

CheckReport compare_f32_with_f64(const OpCase& op_case, std::uint64_t seed) {
  const OpValues values = draw_values(op_case, seed).rounded_to(DType::f32);
  const OpResult exact = run_backward(op_case, values, DType::f64);
  const OpResult rounded = run_backward(op_case, values, DType::f32);
  CheckReport report;
  const auto compare_all = [&report](const std::vector<double>& expected, const std::vector<double>& got,
                                     const std::string& what) {
    const double scale = std::max(largest(expected), kSmallestF32);
    for (std::size_t k = 0; k < expected.size(); ++k) {
      compare(report, expected[k], got[k], scale, fmt::format("{}, element {}", what, k));
    }
  };
  compare_all(exact.output, rounded.output, "output");
  for (std::size_t i = 0; i < exact.gradients.size(); ++i) {
    compare_all(exact.gradients[i], rounded.gradients[i], fmt::format("gradient of input {}", i));
  }
  return report;
}

}  // namespace lockstep::testing
