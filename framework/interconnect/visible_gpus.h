// Which of a host's GPUs a program sees that uses CUDA.
#pragma once

#include <vector>

#include "framework/interconnect/nvml.h"

namespace lockstep {

// NVML's numbers of those that CUDA_VISIBLE_DEVICES leaves, in that order; all where it is not set. Numbers in it mean
// the order of PCI bus ids: CUDA's own default order is the same where all GPUs are of one kind, and where they are not
// all GPUs are given. As for CUDA, the list ends at an entry that names no GPU.
std::vector<int> visible_gpus(const Nvml& nvml);

}  // namespace lockstep
