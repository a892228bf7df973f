// Where a command runs: from the command line and the variables of a launcher to ranks, devices and threads.
#pragma once

#include <chrono>

#include "cli/arguments.h"
#include "framework/core/context.h"
#include "framework/distributed/environment.h"

namespace lockstep::cli {

// How long a rank waits for the others in one collective: they may evaluate more, or write a checkpoint to a slow disk.
// A rank that dies is noticed at once, whatever this is.
inline constexpr std::chrono::minutes kRankDeadline{5};

struct Placement {
  DeviceType device = DeviceType::cpu;
  Environment environment;  // with --ranks taken into account: without a launcher, as many ranks are to be started
  int visible_gpus = 0;     // on --device cuda

  // True in one process of the run: the one that starts the ranks, or rank 0 where another launcher does.
  bool speaks_for_all() const { return environment.rank == 0 && environment.launcher != Launcher::lockstep; }
  // True where this process is to start the ranks rather than to be one.
  bool must_launch() const { return environment.launcher == Launcher::none && environment.world_size > 1; }
};

// auto: GPUs where the build can use them and any is visible. Ranks default to the launcher's, else to one for each
// visible GPU, else 1. Throws std::invalid_argument for a device that is not there and for more ranks than GPUs.
Placement resolve_placement(const DeviceArguments& arguments);

// The context of this rank: its GPU, and its CPU threads by --threads, else OMP_NUM_THREADS, else its share of the
// host's cores.
ContextOptions context_of(const DeviceArguments& arguments, const Placement& placement);

}  // namespace lockstep::cli
