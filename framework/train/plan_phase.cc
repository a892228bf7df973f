#include "framework/train/plan_phase.h"

#include <chrono>

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

bool on_gpu() { return context().device() == DeviceType::cuda; }

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

std::string plan_record() { return on_gpu() ? header() + kernels::cuda::plan_choices() : ""; }

void use_plan_record(const std::string& record) {
  if (!on_gpu() || !record.starts_with(header())) return;
  kernels::cuda::add_plan_choices(record.substr(header().size()));
}

#else

void plan_together(ProcessGroup& /*group*/, const std::function<void()>& /*work*/) {}
std::string plan_record() { return {}; }
void use_plan_record(const std::string& /*record*/) {}

#endif

}  // namespace lockstep
