// Worlds of ranks for tests: the same body on every rank, with a group that ties the ranks together.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "framework/distributed/environment.h"
#include "framework/distributed/process_group.h"
#include "framework/distributed/store.h"

namespace lockstep {

using RankBody = std::function<void(ProcessGroup&)>;

// Ranks are threads with local groups. Returns when all have ended; rethrows what the lowest rank that failed threw. An
// exception on one rank releases the others. `size` in 1, 2, ...
void run_local_world(int size, const RankBody& body, const GroupOptions& options = {});

// The same over Gloo: each thread has a client of one store of this process, and a group of its own.
void run_gloo_world(int size, const RankBody& body, const GroupOptions& options = {});

// Ranks are threads with clients of one store, which live as long as `body` runs.
void run_store_world(int size, const std::function<void(Store&)>& body,
                     std::chrono::milliseconds timeout = std::chrono::seconds(10));

// Ranks are processes, told their place as by a launcher. Each is this test program started anew for the running test,
// where its call of this function calls `body` instead and ends the process: so they have nothing of this process,
// which may have used a GPU, and what the test does before is done by each of them too. Returns their statuses (of
// waitpid) in rank order: 1 << 8 where the body threw or a check failed; what has not ended by `limit` is killed. To be
// called by the test's own thread, and not by chance.
std::vector<int> run_process_world(int size, const std::function<void(const Environment&)>& body,
                                   std::chrono::milliseconds limit = std::chrono::seconds(60));

}  // namespace lockstep
