// Ranks that are processes with a GPU each: NCCL carries the bytes.
#pragma once

#include <memory>

#include "framework/distributed/process_group.h"

namespace lockstep {

// Every rank calls it with its GPU's context current; they find each other through the store. Memory given to the group
// is that GPU's. Collectives run on a stream of the group's own, of the highest priority, and may be captured into a
// graph (thread-local mode), which must be destroyed before the group. A collective that a capture cannot take throws
// Error and leaves the group as it was.
//
// A watchdog aborts the communicator when a collective is overdue, NCCL reports an error or another rank has failed;
// what waits on the GPU ends then, and wait(), check() and every later call throw. Ranks that disagree about a
// collective are found by the deadline only. NVLink multicast is off: NCCL_NVLS_ENABLE is set to 0 unless the user has
// set it. Errors: std::invalid_argument where NCCL is not in this build or two ranks are on one GPU that they may not
// share (gpus_are_shared); Error where a rank does not come.
std::unique_ptr<ProcessGroup> make_nccl_group(const Environment& environment, std::shared_ptr<Store> store,
                                              const GroupOptions& options = {});

}  // namespace lockstep
