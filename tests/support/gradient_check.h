// Gradients of a row of the op table against differences of its forward function, in double precision.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/op_cases.h"

namespace lockstep::testing {

struct CheckReport {
  double worst = 0;         // largest error met
  std::string where;        // and its place, in words
  std::int64_t checks = 0;  // comparisons made
};

// Compares the gradients that backward leaves, overwriting targets that hold NaN, with
//   - those that it leaves when it adds to targets that hold something, minus that: every element;
//   - central differences of fourth order: every element of small inputs, a random choice of large ones;
//   - the derivative along one random direction through all inputs at once.
// The error of a pair (a, n) is |a - n| / max(|a|, |n|, s), s the largest gradient of that input but at most 1 and at
// least 1e-3: never less than |a - n| / max(1, |a|, |n|), and still strict where a mean makes all gradients small.
CheckReport check_gradients(const OpCase& op_case, std::uint64_t seed);

// Compares output and gradients computed in f32 with those in f64. The error is relative to the largest value of the
// tensor, taken as at least 0.05.
CheckReport compare_f32_with_f64(const OpCase& op_case, std::uint64_t seed);

}  // namespace lockstep::testing
