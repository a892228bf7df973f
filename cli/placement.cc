#include "cli/placement.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "framework/core/error.h"
#include "framework/core/nearest_name.h"
#include "framework/core/version.h"

namespace lockstep::cli {
Environment resolve_environment(const DeviceArguments& arguments) {
  expect_known("device", arguments.device, {"auto", "cpu", "cuda"});
  expect(arguments.device != "cuda" || build_part("CUDA").present(),
         "--device cuda: expected a build with CUDA; to get one: {}; or use --device cpu", build_part("CUDA").needs);
  expect(!arguments.ranks || *arguments.ranks >= 1, "--ranks: expected at least 1, got {}", arguments.ranks.value_or(0));
  expect(!arguments.threads || *arguments.threads >= 1, "--threads: expected at least 1, got {}",
         arguments.threads.value_or(0));
  Environment environment = detect_environment(process_environment, arguments.ranks);
  if (environment.launcher == Launcher::none) {
    environment.world_size = environment.local_world_size = arguments.ranks.value_or(1);
  }
  return environment;
}

int threads_of(const DeviceArguments& arguments, const Environment& environment) {
  if (arguments.threads) return *arguments.threads;
  if (const auto variable = process_environment("OMP_NUM_THREADS")) {
    const int threads = std::atoi(variable->c_str());
    expect(threads >= 1, "OMP_NUM_THREADS: expected a number of at least 1, got '{}'", *variable);
    return threads;
  }
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / environment.local_world_size);
}

}  // namespace lockstep::cli
