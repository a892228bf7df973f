// A patch as tensor cores want it: bf16, and its rows copied from the image as they are.
#pragma once

#include "kernels/cuda/patch.cuh"

namespace lockstep::kernels::cuda {

struct PatchRows : PatchGeometry {
  int vector = 1;  // neighbouring elements that are copied at once: rows of the image and of the patch consist of such
  int lead = 0;    // elements of a row of the patch before those of the image: the padding, in whole vectors
  Divisor row_vectors{0};

  // `vectors`: the image is aligned to 16 bytes.
  PatchRows(const PatchGeometry& geometry, bool vectors) : PatchGeometry(geometry) {
    const int image_row = source_width * depth;
    if (vectors && image_row % 2 == 0) vector = image_row % 8 == 0 ? 8 : 2;
    const auto whole = [this](int elements) { return (elements + vector - 1) / vector; };
    lead = whole(padding * depth) * vector;
    row_vectors = Divisor(whole(lead - padding * depth + row_step));
    row_step = Divisor(row_vectors * vector);
  }

  // Starts to copy what a group needs, zeros where the image ends; it is there after wait_for_copies and a barrier. The
  // calling block's threads share it.
  __device__ void start(const bfloat16* source, const Group& group, bfloat16* patch) const {
    const bfloat16* const image = source + group.image * source_height * source_width * depth;
    if (vector == 8) return copy<8>(image, group, patch);
    if (vector == 2) return copy<2>(image, group, patch);
    copy<1>(image, group, patch);
  }

  __device__ int window(int pixel) const { return lead - padding * depth + PatchGeometry::window(pixel); }

 private:
  template <int kVector>
  __device__ void copy(const bfloat16* image, const Group& group, bfloat16* patch) const {
    const int first_row = group.first_row * stride - padding;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < patch_rows() * row_vectors; i += static_cast<int>(blockDim.x)) {
      const int patch_row = i / row_vectors;
      const int row = first_row + patch_row;
      const int column = (i - patch_row * row_vectors) * kVector - lead;
      const bool inside = row >= 0 && row < source_height && column >= 0 && column < source_width * depth;
      const bfloat16* const from = image + (inside ? row * source_width * depth + column : 0);
      if constexpr (kVector == 1) {
        patch[i] = inside ? *from : bfloat16{0};
      } else {
        copy_async<kVector * sizeof(bfloat16)>(patch + i * kVector, from, !inside);
      }
    }
  }
};

}  // namespace lockstep::kernels::cuda
