// Calls of CUDA libraries, checked.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <stdexcept>
#include <string>

namespace lockstep::kernels::cuda {

// A call of a CUDA library that failed: what was called, where, and what the library says.
class CudaError : public std::runtime_error {
 public:
  CudaError(const std::string& call, const std::string& reason, const std::source_location& where)
      : std::runtime_error(call + ": " + reason + " in " + file_of(where) + ":" + std::to_string(where.line())) {}

 private:
  static std::string file_of(const std::source_location& where) {
    const std::string path = where.file_name();
    return path.substr(path.rfind('/') + 1);
  }
};

inline void check(cudaError_t status, const char* call,
                  const std::source_location& where = std::source_location::current()) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that was reported must not be found again by a later call
  throw CudaError(call, std::string(cudaGetErrorString(status)) + " (" + cudaGetErrorName(status) + ")", where);
}

}  // namespace lockstep::kernels::cuda

// Throws CudaError with the text of the call unless it succeeds. For every library that has an overload of check().
#define LOCKSTEP_CUDA_CHECK(call) ::lockstep::kernels::cuda::check((call), #call)
