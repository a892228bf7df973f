#include "framework/core/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "framework/core/error.h"

namespace lockstep {

double median(std::span<const double> values) {
  expect(!values.empty(), "median: expected at least one value, got none");
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double student_t_within(double t, int degrees) {
  expect(degrees >= 1, "student t: expected at least 1 degree of freedom, got {}", degrees);
  const double theta = std::atan(t / std::sqrt(degrees));
  const double cosine = std::cos(theta);
  const bool odd = degrees % 2 == 1;
  // Both series: each term is the one before times cos^2 and a ratio of neighbouring numbers.
  double sum = 0.0;
  double term = odd ? cosine : 1.0;
  for (int k = odd ? 3 : 2; k <= degrees; k += 2) {
    sum += term;
    term *= cosine * cosine * (k - 1) / k;
  }
  return odd ? 2 / std::numbers::pi * (theta + std::sin(theta) * sum) : std::sin(theta) * sum;
}

double student_t_quantile(double probability, int degrees) {
  expect(probability > 0 && probability < 1, "student t: expected a probability between 0 and 1, got {}", probability);
  double low = 0.0;
  double high = 1.0;
  while (student_t_within(high, degrees) < probability) high *= 2;
  while (high - low > 1e-12 * high) {
    const double middle = (low + high) / 2;
    (student_t_within(middle, degrees) < probability ? low : high) = middle;
  }
  return high;
}

Estimate geometric_mean(std::span<const double> values) {
  expect(!values.empty(), "geometric mean: expected at least one value, got none");
  const auto count = static_cast<double>(values.size());
  double mean = 0.0;
  for (const double value : values) {
    expect(value > 0, "geometric mean: expected positive values, got {}", value);
    mean += std::log(value) / count;
  }
  if (values.size() == 1) return {values[0], 0.0, std::numeric_limits<double>::infinity()};
  double squares = 0.0;
  for (const double value : values) squares += (std::log(value) - mean) * (std::log(value) - mean);
  const double half_width =
      student_t_quantile(0.95, static_cast<int>(values.size()) - 1) * std::sqrt(squares / (count - 1) / count);
  return {std::exp(mean), std::exp(mean - half_width), std::exp(mean + half_width)};
}

}  // namespace lockstep
