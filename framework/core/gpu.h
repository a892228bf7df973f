// The GPUs that a process sees, and the one that it uses: a process drives one GPU.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/dispatch.h"

namespace lockstep {

struct GpuCount {
  int count = 0;
  std::string why_none;  // where the count is 0
};

// The rest of this header is defined in a build with CUDA only.

// What CUDA_VISIBLE_DEVICES and the driver leave. Opens the driver in this process, after which it must not fork; makes
// no context.
GpuCount count_gpus();
// The same, asked by a child process: for a launcher, which is still to start ranks. Waits 35 s at most.
GpuCount count_gpus_in_child();

// Makes GPU `index` of the visible ones this process's and the calling thread's. Throws std::invalid_argument where it
// is not there or the process already uses another.
void select_gpu(int index);
// Makes the process's GPU the calling thread's. CUDA keeps the choice by thread, and a thread that never chose would
// open a second context on GPU 0.
void bind_thread_to_gpu();

struct GpuInfo {
  int index = 0;  // among the visible ones
  std::string name;
  std::string uuid;  // "GPU-..." as nvidia-smi writes it: the same whatever CUDA_VISIBLE_DEVICES says
  std::size_t total_bytes = 0;
  std::size_t free_bytes = 0;  // for all processes together
};
// Of the process's GPU.
GpuInfo selected_gpu();

}  // namespace lockstep
