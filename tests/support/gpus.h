// Ranks of tests on the GPUs that are here.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "framework/core/context.h"
#include "framework/core/gpu.h"
#include "framework/distributed/gpu_assignment.h"
#include "framework/distributed/world.h"
#include "tests/support/worlds.h"

namespace lockstep::testing {

// Without opening the driver in this process, which may then still fork: 0 without CUDA.
inline int gpus() {
  if constexpr (kernels::kHasCuda) {
    static const int count = count_gpus_in_child().count;
    return count;
  }
  return 0;
}

// One for each GPU, and up to four where ranks may share them.
inline int ranks_on_gpus() { return gpus() > 0 && gpus() < 4 && gpus_are_shared() ? 4 : gpus(); }

// The context of a rank among those.
inline ContextOptions gpu_options(int rank, bool deterministic = false) {
  ContextOptions options;
  options.device = DeviceType::cuda;
  options.gpu = rank % gpus();
  options.deterministic = deterministic;
  return options;
}

// Ranks that are processes with GPUs; returns as run_process_world() does.
inline std::vector<int> run_gpu_world(int size, const RankBody& body, const GroupOptions& options = {}) {
  return run_process_world(size, [&](const Environment& environment) {
    Context context(gpu_options(environment.local_rank));
    const ContextScope scope(context);
    World world(environment, options);
    body(world.group());
  });
}

}  // namespace lockstep::testing

#define SKIP_WITHOUT_GPUS(needed)                      \
  if (::lockstep::testing::ranks_on_gpus() < (needed)) \
  GTEST_SKIP() << "needs " << (needed) << " GPUs, here are " << ::lockstep::testing::gpus()
