// Which GPU a rank drives: one of its own, unless the user lets ranks share.
#pragma once

#include <string>

#include "framework/distributed/environment.h"

namespace lockstep {

class Store;

// LOCKSTEP_SHARE_GPUS=1: ranks may share a GPU, so that one is enough to try out what takes several. Their bytes then
// go over the network of this host, as if each rank were on another (NCCL_HOSTID): slow, and no link is measured.
// Throws std::invalid_argument for a value other than 0 and 1.
bool gpus_are_shared(const EnvironmentLookup& lookup = process_environment);

// The place among the `visible` GPUs of this process: the local rank's. Where a launcher shows each rank one GPU only,
// it is that one; where GPUs are shared, ranks go round them. Throws std::invalid_argument where there are more ranks
// on this host than GPUs.
int gpu_of_rank(const Environment& environment, int visible);

// Collective. Throws std::invalid_argument on every rank, naming two that share a GPU, unless all uuids differ or GPUs
// are shared.
// `description` says in the message which GPU it is ("GPU 0 (NVIDIA H200)").
void expect_own_gpu(Store& store, const std::string& uuid, const std::string& description);

}  // namespace lockstep
