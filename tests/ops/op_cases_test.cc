// What every row of the op table must pass.
#include <gtest/gtest.h>

#include <ostream>

#include "tests/support/gradient_check.h"
#include "tests/support/random.h"

namespace lockstep::testing {

void PrintTo(const OpCase& op_case, std::ostream* out) { *out << op_case.name; }

namespace {

class OpCases : public ::testing::TestWithParam<OpCase> {};

TEST_P(OpCases, GradientsMatchDifferences) {
  const CheckReport report = check_gradients(GetParam(), test_seed());
  EXPECT_LE(report.worst, 1e-6) << report.where;
  EXPECT_GT(report.checks, 0);
}

TEST_P(OpCases, F32MatchesF64) {
  const CheckReport report = compare_f32_with_f64(GetParam(), test_seed());
  EXPECT_LE(report.worst, GetParam().f32_tolerance) << report.where;
}

INSTANTIATE_TEST_SUITE_P(Table, OpCases, ::testing::ValuesIn(op_cases()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace lockstep::testing
