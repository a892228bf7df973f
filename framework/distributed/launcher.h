// Starts the ranks of `--ranks N` on this host and answers for them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace lockstep {

struct LaunchOptions {
  // How long ranks that are told to end (SIGTERM, or the user's signal) may take before they are killed.
  std::chrono::milliseconds grace{5'000};
};

// Runs `ranks` copies of this program with the arguments argv, which ends with a null pointer, and waits for all of
// them. Each is told its place by the variables of child_environment, reads an empty input and shares this process's
// outputs. SIGINT, SIGTERM and SIGHUP are passed on to them, a second one kills them; they die with this process.
// SIGTSTP stops them too, until this process is continued; the deadlines of what they wait for go on meanwhile. Returns
// 0, else the exit code of the first rank that failed (128 + N for signal N; one line on stderr names the rank, and the
// others are ended), else 128 + N where this process got signal N. No rank is left when it returns. Call it while the
// process has one thread. Throws std::invalid_argument where ranks < 1 or the port of the store (LOCKSTEP_PORT,
// MASTER_PORT, else any free one) is taken.
int launch(int ranks, char** argv, const LaunchOptions& options = {});

// `base` ("NAME=value") with what rank `rank` is to see: torchrun's variables; LOCKSTEP_LAUNCHER; LOCKSTEP_PORT, the
// port of the store; for rank 0 LOCKSTEP_STORE_FD, which listens there; and NCCL_NVLS_ENABLE (NcclSettings::nvls).
std::vector<std::string> child_environment(const std::vector<std::string>& base, int rank, int ranks, int port,
                                           int store_fd);

}  // namespace lockstep
