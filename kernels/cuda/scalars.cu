#include "kernels/scalars.h"

#include <cstdint>
#include <cstring>

#include "kernels/cuda/launch.cuh"

namespace lockstep::kernels {
namespace {

struct Argument {
  std::uint32_t words[kMaxStoreBytes / 4];
};

__global__ void store_words(Argument value, int count, std::uint32_t* target) {
  cuda::begin_kernel();
  for (int i = 0; i < count; ++i) target[i] = value.words[i];
}

}  // namespace

bool cuda::can_launch_programmatically() {
  cudaFuncAttributes attributes{};
  LOCKSTEP_CUDA_CHECK(cudaFuncGetAttributes(&attributes, store_words));
  return attributes.ptxVersion >= 90;  // of the code that runs on this GPU; where it is less, begin_kernel is empty
}

void cuda::store(const ExecContext& exec, std::span<const std::byte> value, void* target) {
  Argument argument{};
  std::memcpy(argument.words, value.data(), value.size());
  Launch(exec, 1, 1)(store_words, argument, static_cast<int>(value.size() / 4), static_cast<std::uint32_t*>(target));
}

}  // namespace lockstep::kernels
