#include "framework/core/cuda_check.h"

#include <spdlog/spdlog.h>

#include <string_view>

#include "framework/core/error.h"

namespace lockstep {

void check_cuda(cudaError_t status, const char* call, const std::source_location& where) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // so that a failure that was dealt with is not reported again by the next call
  const std::string_view path = where.file_name();
  throw Error(fmt::format("{}: {} ({}) in {}:{}", call, cudaGetErrorString(status), cudaGetErrorName(status),
                          path.substr(path.rfind('/') + 1), where.line()));
}

void log_cuda_failure(cudaError_t status, const char* call) noexcept {
  if (status != cudaSuccess) spdlog::warn("{}: {}", call, cudaGetErrorString(status));
}

}  // namespace lockstep
