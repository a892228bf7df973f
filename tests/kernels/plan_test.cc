// The record of choices is text that ranks exchange and runs keep.
#include "kernels/cuda/plan.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include "framework/core/context.h"
#include "framework/core/tensor.h"
#include "kernels/cuda/check.h"
#include "kernels/elementwise.h"
#include "tests/support/gpu_delay.h"
#include "tests/support/gpus.h"

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
  for (const char* line : {"matmul\n", "-1 matmul\n", "2\n", "2 \n", "2 cut off in the mid"}) {
    EXPECT_THROW(add_plan_choices(std::string("1 not added\n") + line), std::invalid_argument) << line;
    EXPECT_EQ(plan_choice("not added"), std::nullopt);
  }
}

// Candidates that write their number to one float on the GPU.
class GpuPlans : public ::testing::Test {
 protected:
  void SetUp() override {
    if (lockstep::testing::gpus() == 0) GTEST_SKIP() << "needs a GPU";
    context_.emplace(ContextOptions{.device = DeviceType::cuda});
    scope_.emplace(*context_);
    target_ = Tensor::zeros({1}, DType::f32);
  }
  int choose_among(const std::string& problem, int count, bool accumulate = false) {
    const Candidates candidates{.count = count,
                                .run = [this](int candidate, const ExecContext& exec) { run_(candidate, exec); },
                                .name = [](int candidate) { return std::to_string(candidate); }};
    return choose(context_->exec(), problem, candidates, {{target_, accumulate}});
  }
  void write(int candidate, const ExecContext& exec) const {
    runs_[candidate] += 1;
    fill(exec, target_, candidate);
  }

  std::optional<Context> context_;
  std::optional<ContextScope> scope_;
  Tensor target_;
  mutable std::map<int, int> runs_;
  std::function<void(int, const ExecContext&)> run_ = [this](int i, const ExecContext& exec) { write(i, exec); };
};

TEST_F(GpuPlans, WhatFailsOrCannotBeCapturedIsNotChosen) {
  run_ = [this](int candidate, const ExecContext& exec) {
    if (candidate == 0) throw std::runtime_error("not for this GPU");
    if (candidate == 1) LOCKSTEP_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(exec.stream)));
    if (candidate == 3) lockstep::testing::enqueue_delay(exec.stream, 3000);  // hopeless
    write(candidate, exec);
  };
  EXPECT_EQ(choose_among("some fail", 4, /*accumulate=*/true), 2);
  EXPECT_EQ(target_.to_host<float>(), std::vector<float>{0}) << "what is added to is put back";
  EXPECT_EQ(plan_choice("some fail"), 2);
  runs_.clear();
  EXPECT_EQ(choose_among("some fail", 4), 2);
  EXPECT_TRUE(runs_.empty()) << "what is on record is not tried again";
  try {
    choose_among("all fail", 2);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()).find("all fail: expected an algorithm that runs"), 0U) << error.what();
  }
}

TEST_F(GpuPlans, AChoiceThatIsOutOfRangeIsMadeAnew) {
  add_plan_choices("7 of another library\n");
  EXPECT_LT(choose_among("of another library", 2), 2);
  EXPECT_LT(*plan_choice("of another library"), 2);
}

TEST_F(GpuPlans, NoneIsMadeWhereItMayNotBe) {
  context_->allow_planning(false);
  add_plan_choices("1 known\n");
  EXPECT_EQ(choose_among("known", 2), 1);
  EXPECT_THROW(choose_among("new", 2), std::runtime_error);
  context_->allow_planning(true);
  EXPECT_NO_THROW(choose_among("new", 2));
}

}  // namespace
}  // namespace lockstep::kernels::cuda
