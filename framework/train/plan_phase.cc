#include "framework/train/plan_phase.h"

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/gpu.h"
#include "framework/core/version.h"
#include "framework/distributed/store.h"
#include "kernels/dispatch.h"

#ifdef LOCKSTEP_HAS_CUDA
#include "kernels/cuda/plan.h"
#endif

namespace lockstep {

#ifdef LOCKSTEP_HAS_CUDA

namespace {

// For rank 0 to try all algorithms of a large model.
constexpr std::chrono::minutes kPlanTime{5};

std::string header() {
  return fmt::format("# {}, CUDA {}, cuDNN {}\n", selected_gpu().name, build_part("CUDA").version,
                     build_part("cuDNN").version);
}

}  // namespace

void plan_together(ProcessGroup& group, const std::function<void()>& work) {
  if (!on_gpu()) return;
  Store* const store = group.store();
  const std::string key = store != nullptr ? store->next_name("plan") : "";
  context().synchronize();
  if (store != nullptr && group.rank() > 0) kernels::cuda::add_plan_choices(store->get(key, kPlanTime));
  work();
  context().synchronize();
  if (store == nullptr) return;
  if (group.rank() == 0) store->set(key, kernels::cuda::plan_choices());
  store->barrier(key, kPlanTime);
}

void use_plans(const std::filesystem::path& file) {
  std::ifstream stream(file);
  const std::string record{std::istreambuf_iterator<char>(stream), {}};
  if (!on_gpu() || !record.starts_with(header())) return;
  kernels::cuda::add_plan_choices(record.substr(header().size()));
}

void save_plans(const std::filesystem::path& file) {
  if (on_gpu()) std::ofstream(file) << header() << kernels::cuda::plan_choices();
}

#else

void plan_together(ProcessGroup& /*group*/, const std::function<void()>& /*work*/) {}
void use_plans(const std::filesystem::path& /*file*/) {}
void save_plans(const std::filesystem::path& /*file*/) {}

#endif

}  // namespace lockstep
