// Ranks that are threads of one process: for one rank, for lessons and for tests.
#pragma once

#include <memory>
#include <vector>

#include "framework/distributed/process_group.h"

namespace lockstep {

// Groups of ranks 0 .. size - 1, one for each thread. Deterministic: every element is reduced in rank order. All
// dtypes; bf16 sums are accumulated in f32. A group that is destroyed (a thread that ends or throws) releases the
// others: what they wait for fails with an Error naming the rank that left.
std::vector<std::unique_ptr<ProcessGroup>> make_local_groups(int size, const GroupOptions& options = {});

}  // namespace lockstep
