#include "framework/train/plan_phase.h"

#include <spdlog/spdlog.h>

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/gpu.h"
#include "framework/core/input_file.h"
#include "framework/core/replace_file.h"
#include "framework/core/version.h"
#include "framework/distributed/agreement.h"
#include "kernels/dispatch.h"

#ifdef LOCKSTEP_HAS_CUDA
#include "kernels/cuda/plan.h"
#endif

namespace lockstep {

#ifdef LOCKSTEP_HAS_CUDA

namespace {

// A choice is a number in a list of candidates. To be raised where a list changes other than at its end.
constexpr int kCandidateLists = 3;

std::string header() {
  return fmt::format("# {}, CUDA {}, cuDNN {}, candidates {}\n", selected_gpu().name, build_part("CUDA").version,
                     build_part("cuDNN").version, kCandidateLists);
}

}  // namespace

void plan_together(ProcessGroup& group, const std::function<void()>& work) {
  if (!on_gpu()) return;
  context().synchronize();
  struct Permission {
    bool afterwards;
    ~Permission() { context().allow_planning(afterwards); }
  };
  const Permission permission{.afterwards = group.size() == 1};
  context().allow_planning(true);
  const auto plan = [&] {
    work();
    context().synchronize();
    return kernels::cuda::plan_choices();
  };
  const std::string choices = from_rank_0(group, "plans", plan);
  if (group.rank() > 0) {
    kernels::cuda::add_plan_choices(choices);
    plan();
  }
  gather_texts(group, "plans made", "");  // before anyone starts a collective
}

void use_plans(const std::filesystem::path& file) {
  expect_no_special_file(file);
  std::ifstream stream(file);
  const std::string record{std::istreambuf_iterator<char>(stream), {}};
  if (!on_gpu() || !record.starts_with(header())) return;
  try {
    kernels::cuda::add_plan_choices(record.substr(header().size()));
  } catch (const std::invalid_argument& error) {
    spdlog::warn("{} is passed over, since it is damaged: {}", file.string(), error.what());
  }
}

void save_plans(const std::filesystem::path& file) {
  if (on_gpu()) replace_file(file, header() + kernels::cuda::plan_choices());
}

#else

void plan_together(ProcessGroup& /*group*/, const std::function<void()>& /*work*/) {}
void use_plans(const std::filesystem::path& /*file*/) {}
void save_plans(const std::filesystem::path& /*file*/) {}

#endif

}  // namespace lockstep
