// The record of choices is text that ranks exchange and runs keep.
#include "kernels/cuda/plan.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace lockstep::kernels::cuda {
namespace {

TEST(PlanChoices, LinesComeBack) {
  add_plan_choices("2 conv2d forward f32 (1, 2, 3, 4)\n0 matmul (3, 4, 5) nt\n");
  EXPECT_EQ(plan_choice("conv2d forward f32 (1, 2, 3, 4)"), 2);
  EXPECT_EQ(plan_choice("matmul (3, 4, 5) nt"), 0);
  EXPECT_EQ(plan_choice("matmul (3, 4, 5) tn"), std::nullopt);
  EXPECT_EQ(plan_choices(), "2 conv2d forward f32 (1, 2, 3, 4)\n0 matmul (3, 4, 5) nt\n");
  add_plan_choices(plan_choices());
  EXPECT_EQ(plan_choices(), "2 conv2d forward f32 (1, 2, 3, 4)\n0 matmul (3, 4, 5) nt\n");
}

TEST(PlanChoices, OtherLinesAreRefused) {
  for (const char* line : {"matmul", "-1 matmul", "2", "2 "}) {
    EXPECT_THROW(add_plan_choices(line), std::invalid_argument) << line;
  }
}

}  // namespace
}  // namespace lockstep::kernels::cuda
