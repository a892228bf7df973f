#include "cli/placement.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <thread>

#include "framework/core/error.h"
#include "framework/core/gpu.h"
#include "framework/core/nearest_name.h"
#include "framework/core/version.h"
#include "framework/distributed/gpu_assignment.h"

namespace lockstep::cli {
namespace {

// More than this of a core is a slip of the hand: it would take minutes to start, or to do anything.
constexpr int kMostPerCore = 16;

int host_cores() { return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))); }

// A process that is to start ranks must not open the driver itself.
GpuCount visible_gpus(const Environment& environment) {
  if constexpr (kernels::kHasCuda) {
    return environment.launcher == Launcher::none ? count_gpus_in_child() : count_gpus();
  }
  return {.count = 0, .why_none = fmt::format("this build has no CUDA: {}", build_part("CUDA").needs)};
}

int threads_of(const DeviceArguments& arguments, const Environment& environment) {
  if (arguments.threads) return *arguments.threads;
  if (const auto variable = process_environment("OMP_NUM_THREADS")) {
    int threads = 0;
    const char* const end = variable->data() + variable->size();
    const auto [stop, failure] = std::from_chars(variable->data(), end, threads);
    expect(failure == std::errc{} && stop == end && threads >= 1 && threads <= kMostPerCore * host_cores(),
           "OMP_NUM_THREADS: expected a number from 1 to {}, got '{}'", kMostPerCore * host_cores(), *variable);
    return threads;
  }
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / environment.local_world_size);
}

}  // namespace

Placement resolve_placement(const DeviceArguments& arguments) {
  expect_known("device", arguments.device, {"auto", "cpu", "cuda"});
  expect_known("precision", arguments.precision, {"f32", "tf32", "bf16"});
  expect(!arguments.ranks || *arguments.ranks >= 1, "--ranks: expected at least 1, got {}",
         arguments.ranks.value_or(0));
  const int most = kMostPerCore * host_cores();
  expect(std::max(arguments.ranks.value_or(1), arguments.threads.value_or(1)) <= most,
         "--ranks, --threads: expected at most {} on the {} cores of this host, got {} and {}", most, host_cores(),
         arguments.ranks.value_or(1), arguments.threads.value_or(1));
  expect(!arguments.threads || *arguments.threads >= 1, "--threads: expected at least 1, got {}",
         arguments.threads.value_or(0));
  Placement placement{.environment = detect_environment(process_environment, arguments.ranks)};
  if (arguments.device != "cpu") {
    const GpuCount gpus = visible_gpus(placement.environment);
    expect(gpus.count > 0 || arguments.device == "auto",
           "--device cuda: expected a GPU, got none: {}; or use --device cpu", gpus.why_none);
    placement.visible_gpus = gpus.count;
    if (gpus.count > 0) placement.device = DeviceType::cuda;
  }
  expect(arguments.precision == "f32" || placement.device == DeviceType::cuda,
         "--precision {}: expected a GPU, got CPU ranks, which compute in f32", arguments.precision);
  Environment& environment = placement.environment;
  const bool on_gpus = placement.device == DeviceType::cuda;
  if (environment.launcher == Launcher::none) {
    const bool several = on_gpus && build_part("NCCL").present();
    environment.world_size = environment.local_world_size =
        arguments.ranks.value_or(several ? placement.visible_gpus : 1);
  }
  // These throw what would else be found in each rank.
  if (on_gpus) gpu_of_rank(environment, placement.visible_gpus);
  threads_of(arguments, environment);
  return placement;
}

ContextOptions context_of(const DeviceArguments& arguments, const Placement& placement) {
  ContextOptions options{.device = placement.device,
                         .threads = threads_of(arguments, placement.environment),
                         .dtype = arguments.precision == "bf16" ? DType::bf16 : DType::f32,
                         .allow_tf32 = arguments.precision == "tf32",
                         .deterministic = arguments.deterministic};
  if (placement.device == DeviceType::cuda) options.gpu = gpu_of_rank(placement.environment, placement.visible_gpus);
  return options;
}

}  // namespace lockstep::cli
