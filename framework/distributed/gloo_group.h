// Ranks that are processes on CPUs: Gloo carries the bytes over TCP.
#pragma once

#include <memory>

#include "framework/distributed/process_group.h"

namespace lockstep {

// Every rank calls it; they find each other through the store. On one host Gloo binds to loopback, else to the
// interface named by GLOO_SOCKET_IFNAME or the one that leads to MASTER_ADDR. Elements are reduced in rank order
// whatever their number, so results equal those of a local group bit for bit; bf16 sums are accumulated in f32. Errors:
// std::invalid_argument where Gloo is not in this build; Error where a peer does not come.
std::unique_ptr<ProcessGroup> make_gloo_group(const Environment& environment, std::shared_ptr<Store> store,
                                              const GroupOptions& options = {});

}  // namespace lockstep
