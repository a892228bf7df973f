// Which GPU a rank drives: one of its own.
#pragma once

#include <string>

#include "framework/distributed/environment.h"

namespace lockstep {

class Store;

// The place among the `visible` GPUs of this process: the local rank's. Where a launcher shows each rank one GPU only,
// it is that one. Throws std::invalid_argument where there are more ranks on this host than GPUs.
int gpu_of_rank(const Environment& environment, int visible);

// Collective. Throws std::invalid_argument on every rank, naming two that share a GPU, unless all uuids differ.
// `description` says in the message which GPU it is ("GPU 0 (NVIDIA H200)").
void expect_own_gpu(Store& store, const std::string& uuid, const std::string& description);

}  // namespace lockstep
