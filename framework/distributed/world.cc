#include "framework/distributed/world.h"

#include <fmt/core.h>

#include <cstdio>
#include <exception>

#include "framework/core/error.h"
#include "framework/core/exit_codes.h"
#include "framework/core/gpu.h"
#include "framework/distributed/agreement.h"
#include "framework/distributed/gpu_assignment.h"
#include "framework/distributed/launcher.h"

namespace lockstep {
namespace {

std::shared_ptr<Store> join_store(const Environment& environment) {
  return environment.world_size > 1 ? std::make_shared<Store>(store_options(environment)) : nullptr;
}

ContextOptions on_own_gpu(ContextOptions options, const Environment& environment) {
  if constexpr (kernels::kHasCuda) {
    if (options.device == DeviceType::cuda) {
      const GpuCount gpus = count_gpus();
      expect(gpus.count > 0, "context: expected a GPU, got none: {}", gpus.why_none);
      options.gpu = gpu_of_rank(environment, gpus.count);
    }
  }
  return options;
}

}  // namespace

World::World(const Environment& environment, const GroupOptions& options, const std::string& options_text)
    : environment_(environment), store_(join_store(environment)) {
  run([&] {
    if (store_) expect_agreement(*store_, "options", options_text);  // even where the group runs depends on them
    group_ = make_process_group("auto", environment, store_, options);
  });
}

void World::run(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    try {
      if (store_) store_->abort(error.what());
    } catch (const std::exception&) {
      // The store is gone too, which the others notice by themselves.
    }
    throw;
  }
}

int run_ranks(int ranks, char** argv, const std::function<void(World&)>& body, const ContextOptions& options,
              const GroupOptions& group_options) {
  int rank = 0;
  try {
    const Environment environment = detect_environment();
    if (environment.launcher == Launcher::none && ranks > 1) return launch(ranks, argv);
    rank = environment.rank;
    Context context(on_own_gpu(options, environment));
    const ContextScope scope(context);
    World world(environment, group_options);
    world.run([&] { body(world); });
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    return exit_code_of(error);
  }
}

}  // namespace lockstep
