// Failures of the CUDA runtime as lockstep::Error. For the files that call it; headers stay free of CUDA's.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>

namespace lockstep {

// Throws Error ("cudaMalloc: out of memory (cudaErrorMemoryAllocation) in cuda_memory.cc:31") unless `status` says
// success. CUDA reports a kernel's failure at whatever call comes next, so the call named may not be the culprit.
void check_cuda(cudaError_t status, const char* call,
                const std::source_location& where = std::source_location::current());

// For destructors and others that must not throw: the failure goes to the log.
void log_cuda_failure(cudaError_t status, const char* call) noexcept;

}  // namespace lockstep
