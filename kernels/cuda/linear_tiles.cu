#include "kernels/cuda/linear_tiles.h"

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/product_tile.cuh"

namespace lockstep::kernels {
namespace {

using cuda::Product;
using cuda::Tiling;

template <int kWarps, int kStages, bool kSliced, class T>
__global__ void __launch_bounds__(32 * kWarps, 1) forward_kernel(const __grid_constant__ Product<T> product) {
  cuda::compute_tile<kWarps, kStages, kSliced, true, true, false>(product, static_cast<int>(blockIdx.x));
}

// The blocks of the gradient of x, then those of the weight's.
template <int kWarps, int kStages, bool kSliced, class T>
__global__ void __launch_bounds__(32 * kWarps, 1)
    backward_kernel(const __grid_constant__ Product<T> dx, const __grid_constant__ Product<T> dweight, int dx_blocks) {
  const int block = static_cast<int>(blockIdx.x);
  if (block < dx_blocks) {
    cuda::compute_tile<kWarps, kStages, kSliced, true, false, true>(dx, block);
  } else {
    cuda::compute_tile<kWarps, kStages, kSliced, false, false, true>(dweight, block - dx_blocks);
  }
}

template <int kWarps, int kStages, bool kSliced, class T>
std::size_t shared_bytes(int chunks) {
  constexpr int kSumBytes = kWarps * cuda::kTile * (cuda::kSumLine + 1) * static_cast<int>(sizeof(float));
  const int bytes = std::max(std::min(chunks, kStages) * cuda::Chunk<T>::kStageBytes, kSumBytes);
  return static_cast<std::size_t>(bytes) + (kSliced ? sizeof(cuda::SliceMail) : 0);
}

// What the larger of a tiling's kernels needs where a sum is over so many elements at most.
template <class T>
std::size_t most_shared_bytes_of(Tiling tiling, std::int64_t depth) {
  constexpr std::int64_t kChunk = cuda::Chunk<T>::kDepth;
  const auto chunks = static_cast<int>(std::min<std::int64_t>((depth + kChunk - 1) / kChunk, 8));
  if (tiling == Tiling::deep) return shared_bytes<4, 8, false, T>(chunks);
  if (tiling == Tiling::wide) return shared_bytes<8, 8, false, T>(chunks);
  return shared_bytes<4, 4, true, T>(chunks);
}

// A cluster has 2^this blocks.
int cluster_bits_of(Tiling tiling) {
  static_assert(cuda::kMostSlices == 1 << 3);
  if (tiling == Tiling::quarters) return 2;
  return tiling == Tiling::eighths ? 3 : 0;
}

// Blocks for a product in a grid of such clusters.
template <class T>
int blocks_of(const Product<T>& product, int cluster) {
  const int blocks = product.tiles() << product.slice_bits;
  return (blocks + cluster - 1) / cluster * cluster;
}

}  // namespace

const char* cuda::tiling_name(Tiling tiling) {
  switch (tiling) {
    case Tiling::deep:
      return "deep";
    case Tiling::wide:
      return "wide";
    case Tiling::quarters:
      return "quarter";
    case Tiling::eighths:
      return "eighth";
  }
  return "?";
}

std::vector<Tiling> cuda::linear_tilings(const ConstView& x, const Shape& weight) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (x.numel() == 0 || weight.numel() == 0 || x.numel() >= kMost || weight.numel() >= kMost) return {};
  std::vector<Tiling> tilings = {Tiling::deep, Tiling::wide};
  if (can_launch_programmatically()) {  // then there are clusters too: both need sm_90
    tilings.insert(tilings.end(), {Tiling::quarters, Tiling::eighths});
  }
  const std::int64_t depth = std::max({x.shape[0], x.shape[1], weight[0]});
  with_float_type(x.dtype, [&]<class T>(T) {
    std::erase_if(tilings, [&](Tiling tiling) { return most_shared_bytes_of<T>(tiling, depth) > most_shared_bytes(); });
  });
  return tilings;
}

void cuda::linear_tiles_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias, bool relu,
                                View y, Tiling tiling) {
  with_float_type(x.dtype, [&]<class T>(T) {
    const int cluster = 1 << cluster_bits_of(tiling);
    Product<T> product{.a = x, .b = weight, .depth = static_cast<int>(x.shape[1]), .out = {y, false}, .sums = {}};
    product.out.bias = bias.data == nullptr ? nullptr : bias.as<T>();
    product.out.relu = relu;
    product.slice_bits = cluster_bits_of(tiling);
    const auto launch = [&]<int kWarps, int kStages, bool kSliced>() {
      Launch(exec, static_cast<unsigned>(blocks_of(product, cluster)), 32 * kWarps,
             shared_bytes<kWarps, kStages, kSliced, T>(product.chunks_of(0)))
          .in_clusters_of(static_cast<unsigned>(cluster))(forward_kernel<kWarps, kStages, kSliced, T>, product);
    };
    if (cluster > 1) return launch.template operator()<4, 4, true>();
    tiling == Tiling::deep ? launch.template operator()<4, 8, false>() : launch.template operator()<8, 8, false>();
  });
}

void cuda::linear_tiles_backward(const ExecContext& exec, ConstView dy, ConstView x, ConstView weight, GradView dx,
                                 GradView dweight, GradView dbias, Tiling tiling) {
  with_float_type(x.dtype, [&]<class T>(T) {
    const int cluster = 1 << cluster_bits_of(tiling);
    Product<T> to_x{.a = dy, .b = weight, .depth = static_cast<int>(dy.shape[1]), .out = {}, .sums = {}};
    Product<T> to_weight{.a = dy, .b = x, .depth = static_cast<int>(dy.shape[0]), .out = {}, .sums = {}};
    int chunks = 0;
    for (Product<T>* product : {&to_x, &to_weight}) {
      if (!(product == &to_x ? dx : dweight)) continue;
      // A depth of one chunk cannot be shared: then each block of a cluster has a tile of its own.
      product->slice_bits = product->chunks() > 1 ? cluster_bits_of(tiling) : 0;
      chunks = std::max(chunks, product->chunks_of(0));
    }
    if (dx) {
      to_x.out = {dx.view, dx.accumulate};
      if (dx.unrectified != nullptr) {
        to_x.out.rectifier = x.as<T>();
        to_x.out.vectors = to_x.out.vectors && aligned(x.as<T>());
      }
    }
    if (dweight) {
      to_weight.out = {dweight.view, dweight.accumulate};
      if (dbias) to_weight.sums = {dbias.view, dbias.accumulate};
    }
    const int dx_blocks = blocks_of(to_x, cluster);
    const int blocks = dx_blocks + blocks_of(to_weight, cluster);
    if (blocks == 0) return;
    const auto launch = [&]<int kWarps, int kStages, bool kSliced>() {
      Launch(exec, static_cast<unsigned>(blocks), 32 * kWarps, shared_bytes<kWarps, kStages, kSliced, T>(chunks))
          .in_clusters_of(static_cast<unsigned>(cluster))(backward_kernel<kWarps, kStages, kSliced, T>, to_x, to_weight,
                                                          dx_blocks);
    };
    if (cluster > 1) return launch.template operator()<4, 4, true>();
    tiling == Tiling::deep ? launch.template operator()<4, 8, false>() : launch.template operator()<4, 3, false>();
  });
}

}  // namespace lockstep::kernels
