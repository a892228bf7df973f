// Linear layers by tiles that are all computed at once: for small batches, where a step is a matter of latency and of
// the number of kernels. A library's kernels are made for large matrices.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/linear.h"

namespace lockstep::kernels::cuda {

// How the tiles of the results are computed.
enum class Tiling : std::uint8_t {
  deep,      // by four warps, up to eight chunks of the depth under way; a block may fill an SM's memory
  wide,      // forward by eight warps, backward with three chunks, so that several of its many blocks share an SM
  quarters,  // by clusters of four blocks, which share the depth: for few tiles of a large depth. From sm_90 on
  eighths,   // the same by eight
};

const char* tiling_name(Tiling tiling);

// Those that can do it here, with the shared memory that this GPU has; none where something is empty or very large.
std::vector<Tiling> linear_tilings(const ConstView& x, const Shape& weight);

// As in kernels/linear.h. Backward is one kernel and rectifies the gradient of x where that is asked for; it takes a
// bias only together with a weight.
void linear_tiles_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias, bool relu, View y,
                          Tiling tiling);
void linear_tiles_backward(const ExecContext& exec, ConstView dy, ConstView x, ConstView weight, GradView dx,
                           GradView dweight, GradView dbias, Tiling tiling);

}  // namespace lockstep::kernels::cuda
