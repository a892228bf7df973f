// What ranks and runs share of the plan phase.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/tensor.h"
#include "framework/train/plan_phase.h"
#include "kernels/cuda/plan.h"
#include "kernels/elementwise.h"
#include "tests/support/gpu_delay.h"
#include "tests/support/gpus.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

namespace cuda = kernels::cuda;

int choose_on(int rank, const std::string& problem, const Tensor& target, int& runs) {
  const auto run = [&](int candidate, const ExecContext& exec) {
    ++runs;
    // Each rank would choose another.
    testing::enqueue_delay(exec.stream, candidate == rank ? 200 : 0);
    cuda::fill(exec, target, candidate);
  };
  return cuda::choose(context().exec(), problem,
                      {.count = 2, .run = run, .name = [](int i) { return std::to_string(i); }}, {{target, false}});
}

void expect_rank_0s_choices(ProcessGroup& group) {
  const Tensor target = Tensor::zeros({1}, DType::f32);
  int runs = 0;
  int choice = -1;
  plan_together(group, [&] { choice = choose_on(group.rank(), "common", target, runs); });
  EXPECT_EQ(choice, 1);
  EXPECT_EQ(runs > 0, group.rank() == 0);
  EXPECT_THROW(choose_on(group.rank(), "too late", target, runs), std::runtime_error);
  plan_together(group, [&] {
    if (group.rank() == 1) choice = choose_on(1, "of rank 1 alone", target, runs);
  });
  EXPECT_EQ(choice, group.rank() == 1 ? 0 : 1);
  // What rank 0 throws, each throws.
  EXPECT_THROW(plan_together(group, [] { throw std::invalid_argument("a wrong shape"); }), std::invalid_argument);
}

TEST(Gpu, OtherRanksTakeTheChoicesOfRankZero) {
  SKIP_WITHOUT_GPUS(2);
  EXPECT_EQ(testing::run_gpu_world(2, expect_rank_0s_choices), (std::vector<int>{0, 0}));
}

TEST(Gpu, ARunsPlansAreUsedAgainWhereTheyFit) {
  SKIP_WITHOUT_GPUS(1);
  Context context(ContextOptions{.device = DeviceType::cuda});
  const ContextScope scope(context);
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory / "plans.txt";
  cuda::add_plan_choices("3 kept\n");
  save_plans(file);
  std::ifstream stream(file);
  std::string header;
  std::getline(stream, header);
  const std::string lines{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_NE(("\n" + lines).find("\n3 kept\n"), std::string::npos) << lines;
  const auto use = [&](const std::string& text) {
    std::ofstream(file) << text;
    use_plans(file);
  };
  use(header + "\n5 used again\n");
  EXPECT_EQ(cuda::plan_choice("used again"), 5);
  use("# another GPU, CUDA 1.0, cuDNN 1.0\n5 foreign\n");
  EXPECT_EQ(cuda::plan_choice("foreign"), std::nullopt);
  EXPECT_NO_THROW(use(header + "\n5 of a damaged file\n7 cut o"));
  EXPECT_EQ(cuda::plan_choice("of a damaged file"), std::nullopt);
  EXPECT_NO_THROW(use_plans(directory / "none"));
  EXPECT_THROW(save_plans("/proc/plans.txt"), Error);
}

}  // namespace
}  // namespace lockstep
