// Every row of the op table on a GPU against the CPU in double precision.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/gpu.h"
#include "tests/support/op_cases.h"
#include "tests/support/op_run.h"
#include "tests/support/seed.h"

namespace lockstep::testing {

void PrintTo(const OpCase& op_case, std::ostream* out);  // in op_cases_test.cc

namespace {

using Values = std::vector<double>;

class GpuOpCases : public ::testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override {
    if (const GpuCount gpus = count_gpus(); gpus.count == 0) GTEST_SKIP() << gpus.why_none;
  }
};

double norm(const Values& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

// Holds the distance between two tensors to `tolerance` times the size of the expected one, taken as at least `size`. A
// tensor whose elements are all tiny is what rounding left of zero.
void expect_close(const Values& expected, const Values& got, double tolerance, double size, const std::string& what) {
  ASSERT_EQ(expected.size(), got.size()) << what;
  Values difference(expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) difference[i] = got[i] - expected[i];
  const double smallest = 1e-2 * std::sqrt(static_cast<double>(expected.size()));
  EXPECT_LE(norm(difference), tolerance * std::max({norm(expected), smallest, size})) << what;
}

// `start` is what the gradients were added to, which rounding is relative to where the sum cancels. bf16_roundings: see
// OpCase.
void expect_close(const OpResult& expected, const OpResult& got, const std::vector<Values>* start, double tolerance,
                  int bf16_roundings, const std::string& what) {
  expect_close(expected.output, got.output, tolerance, 0, what + ": output");
  double largest = 0;
  if (bf16_roundings > 0) {
    tolerance = std::max(tolerance, bf16_roundings * 0x1p-8);
    for (const Values& gradient : expected.gradients) largest = std::max(largest, norm(gradient));
  }
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    const double added_to = start == nullptr ? 0 : norm((*start)[i]);
    expect_close(expected.gradients[i], got.gradients[i], tolerance, std::max(largest, added_to),
                 fmt::format("{}: gradient of input {}", what, i));
  }
}

// Overwriting a target filled with NaN, and adding to one. Gradients come in the type of the activations, and in the
// other one.
void expect_agreement(const OpCase& op_case, DType dtype, double tolerance) {
  const OpValues values = draw_values(op_case, test_seed()).rounded_to(dtype);
  std::mt19937_64 random(values.weight_seed + 1);
  std::uniform_int_distribution<int> eighths(-8, 8);  // exact in every type
  std::vector<Values> initial;
  for (const Values& input : values.inputs) {
    for (double& value : initial.emplace_back(input.size())) value = eighths(random) / 8.0;
  }
  Context gpu({.device = DeviceType::cuda, .dtype = dtype});
  for (const std::vector<Values>* start : {static_cast<const std::vector<Values>*>(nullptr), &std::as_const(initial)}) {
    const OpResult expected = run_backward(op_case, values, DType::f64, start);
    const ContextScope scope(gpu);
    for (const DType gradients : {DType::f32, DType::bf16}) {
      const double allowed = gradients == DType::bf16 ? std::max(tolerance, 1e-2) : tolerance;
      expect_close(expected, run_backward(op_case, values, dtype, start, gradients), start, allowed,
                   dtype == DType::bf16 ? op_case.bf16_roundings : 0,
                   fmt::format("{}, gradients {} {}", dtype_name(dtype), start == nullptr ? "written in" : "added in",
                               dtype_name(gradients)));
    }
  }
}

TEST_P(GpuOpCases, F32AgreesWithCpu) { expect_agreement(GetParam(), DType::f32, 1e-4); }

TEST_P(GpuOpCases, Bf16AgreesWithCpu) { expect_agreement(GetParam(), DType::bf16, 1e-2); }

INSTANTIATE_TEST_SUITE_P(Table, GpuOpCases, ::testing::ValuesIn(op_cases()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace lockstep::testing
