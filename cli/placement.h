// Where a command runs: from the command line and the variables of a launcher to ranks, devices and threads.
#pragma once

#include "cli/arguments.h"
#include "framework/distributed/environment.h"

namespace lockstep::cli {

// The environment of this process, with --ranks taken into account: where no launcher started it, the returned world
// size is how many ranks are to be started. Throws std::invalid_argument for a device that is not there.
Environment resolve_environment(const DeviceArguments& arguments);

// True where this process is to start the ranks rather than to be one.
inline bool must_launch(const Environment& environment) {
  return environment.launcher == Launcher::none && environment.world_size > 1;
}

// CPU threads of a rank: --threads, else OMP_NUM_THREADS, else its share of the host's cores.
int threads_of(const DeviceArguments& arguments, const Environment& environment);

}  // namespace lockstep::cli
