// Counter-based random numbers: every draw is a pure function of (seed, step, op, sample, element), so that a mask does
// not depend on the number of ranks, repeats on resume, and can be made again in backward instead of being stored.
// Philox4x32-10: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

#ifdef __CUDACC__
#define LOCKSTEP_HOST_DEVICE __host__ __device__
#else
#define LOCKSTEP_HOST_DEVICE
#endif

namespace lockstep {

// Lives in the memory of the device, so that a captured step reads new values at each replay.
struct RandomState {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;          // optimizer steps since the start of training
  std::int64_t sample_offset = 0;  // place in the global batch of the first sample that this rank holds now

  bool operator==(const RandomState&) const = default;
};

namespace kernels {

struct PhiloxBlock {
  std::uint32_t word[4];
};

LOCKSTEP_HOST_DEVICE inline PhiloxBlock philox4x32(PhiloxBlock counter, std::uint64_t key) {
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter.word[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter.word[2];
    counter = {
        {static_cast<std::uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0, static_cast<std::uint32_t>(product1),
         static_cast<std::uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1, static_cast<std::uint32_t>(product0)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// Four draws of op `op` for elements [4 * block, 4 * block + 4) of one sample.
LOCKSTEP_HOST_DEVICE inline PhiloxBlock random_block(const RandomState& state, std::uint32_t op, std::int64_t sample,
                                                     std::int64_t block) {
  const PhiloxBlock counter = {{static_cast<std::uint32_t>(block),
                                static_cast<std::uint32_t>(state.sample_offset + sample),
                                static_cast<std::uint32_t>(state.step), op}};
  return philox4x32(counter, state.seed);
}

// Uniform in [0, 1): the upper 24 bits, exact in f32.
LOCKSTEP_HOST_DEVICE inline float to_unit(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24F; }

// x[i] = low + (high - low) * u, u uniform in [0, 1). x: any shape, f32 or f64 (GPU: f32 or bf16); all types
// get the same draws.
// `stream` separates tensors filled from one seed.
using FillUniform = void(const ExecContext& exec, View x, double low, double high, std::uint64_t seed,
                         std::uint32_t stream);
// x[i] = mean + std * n, n standard normal by the Box-Muller transform.
using FillNormal = void(const ExecContext& exec, View x, double mean, double std, std::uint64_t seed,
                        std::uint32_t stream);

namespace cpu {
FillUniform fill_uniform;
FillNormal fill_normal;
}  // namespace cpu
namespace cuda {
FillUniform fill_uniform;
FillNormal fill_normal;
}  // namespace cuda

}  // namespace kernels
}  // namespace lockstep
