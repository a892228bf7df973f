// The proof before a training: all-reduces between two readings of the counters.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/distributed/process_group.h"
#include "framework/interconnect/link_proof.h"

namespace lockstep {

struct ProbeOptions {
  std::int64_t bytes = std::int64_t{256} << 20;  // of one all-reduce
  int repeats = 4;
  // Whether NCCL's own log shows this rank's connections, none of which can take NVLink. Asked once they are made.
  std::function<bool()> nccl_avoids_nvlink;
  ProbeConditions conditions;  // of this rank's NCCL; what one rank does otherwise, the whole ring may
};

// Collective, in the current context: reduces `repeats` buffers of `bytes` (f32) over the group after one to warm up,
// and judges by the readings of every rank's `counters` (of its own GPU). Every rank returns the same. The memory goes
// back to the device. A world of one rank has no link: unproven.
LinkProof probe_link(LinkMode mode, ProcessGroup& group, LinkCounters& counters, const ProbeOptions& options = {});

// Collective: every rank's process id, and what its counters say, in rank order.
std::vector<unsigned> gather_processes(ProcessGroup& group);
std::vector<LinkTraffic> gather_traffic(ProcessGroup& group, const LinkTraffic& traffic);

}  // namespace lockstep
