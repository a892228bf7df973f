// The table of op cases: every differentiable op over odd sizes, and the ways in which ops are put together. A row says
// how to draw the arguments and how to call the op (op_run.h does both); from it come the check of gradients in double
// precision and the comparison of f32 with f64 (gradient_check.h), the comparison of devices, and the benchmark. To
// cover a new op, add a row in op_cases.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/core/tensor.h"

namespace lockstep::testing {

// An argument that has a gradient. Its values are uniform in [low, high].
struct OpInput {
  Shape shape;
  double low = -1;
  double high = 1;
  double away_from_zero = 0;  // least distance from 0, for functions with a kink there
  bool distinct = false;      // any two values are at least 2e-3 apart, for maxima; low and high are not used then
};

// An argument of integers (i32), uniform in [0, limit).
struct OpIndices {
  Shape shape;
  std::int32_t limit = 1;
};

struct OpArguments {
  std::vector<Tensor> inputs;
  std::vector<Tensor> indices;
};

struct OpCase {
  std::string name;  // of the op and its sizes; letters, digits and underscores
  std::vector<OpInput> inputs;
  std::vector<OpIndices> indices;
  std::function<Tensor(const OpArguments&)> forward;
  double f32_tolerance = 1e-5;  // allowed difference between f32 and f64, relative to the largest value of a tensor
  // Of a composition: how many results are rounded to bf16 one after another, forward and back. Each may be off by
  // 2^-8, and a gradient that is a small difference of large ones is as inexact as those: in bf16 gradients may be off
  // by so many times 2^-8 of the largest of them. 0: as exact as a single op.
  int bf16_roundings = 0;
  // For functions with kinks within: whether the arguments keep clear of them. Others are drawn again.
  std::function<bool(const OpArguments&)> suits = {};
};

// All rows.
const std::vector<OpCase>& op_cases();

}  // namespace lockstep::testing
