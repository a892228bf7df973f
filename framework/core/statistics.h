// What repeated measurements say, and how far they can be trusted.
#pragma once

#include <span>

namespace lockstep {

// The middle value, or the mean of the two in the middle. Expects at least one.
double median(std::span<const double> values);

// A value with its 95 % confidence interval.
struct Estimate {
  double value = 0.0;
  double low = 0.0;
  double high = 0.0;
};

// P(|T| <= t) for Student's t with `degrees` degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).
double student_t_within(double t, int degrees);
// The t that |T| stays under with this probability, such as 2.776 for 0.95 and 4 degrees of freedom.
double student_t_quantile(double probability, int degrees);

// Geometric mean of positive values with the t interval of the mean of their logarithms: for ratios, where twice as
// fast and half as fast are equally far from 1. One value has no interval: both ends are infinitely far.
Estimate geometric_mean(std::span<const double> values);

}  // namespace lockstep
