// A patch of an image in shared memory, and the offsets in it of what a convolution sums over.
#pragma once

#include "kernels/conv2d.h"
#include "kernels/cuda/mma.cuh"

namespace lockstep::kernels::cuda {

// The sum of each pixel of the target runs over the taps of the kernel and the channels of the source (`depth`). A
// block takes groups of whole rows of the target: their pixels are neighbours in memory.
struct PatchGeometry {
  int height, width;  // of the target
  int source_height, source_width, depth;
  int kernel_rows, kernel_columns, stride, padding;
  int rows;  // of the target in a group
  int image_groups;
  std::int64_t groups;

  // `pixels`: of a group, at least, unless the image has fewer.
  PatchGeometry(const Shape& source, const Shape& target, std::int64_t kernel_height, std::int64_t kernel_width,
                std::int64_t step, std::int64_t zeros, std::int64_t pixels)
      : height(static_cast<int>(target[1])),
        width(static_cast<int>(target[2])),
        source_height(static_cast<int>(source[1])),
        source_width(static_cast<int>(source[2])),
        depth(static_cast<int>(source[3])),
        kernel_rows(static_cast<int>(kernel_height)),
        kernel_columns(static_cast<int>(kernel_width)),
        stride(static_cast<int>(step)),
        padding(static_cast<int>(zeros)),
        rows(static_cast<int>(std::clamp<std::int64_t>((pixels + width - 1) / width, 1, height))),
        image_groups((height + rows - 1) / rows),
        groups(target[0] * image_groups) {}

  __host__ __device__ int products() const { return kernel_rows * kernel_columns * depth; }
  __host__ __device__ int patch_rows() const { return (rows - 1) * stride + kernel_rows; }
  __host__ __device__ int patch_row_size() const { return ((width - 1) * stride + kernel_columns) * depth; }
  __host__ __device__ int patch_bytes() const {
    return (patch_rows() * patch_row_size() * static_cast<int>(sizeof(bfloat16)) + 15) / 16 * 16;
  }

  // Of a group: its image, its first row, its number of pixels, and that of the first among all images'.
  struct Group {
    std::int64_t image;
    int first_row, pixels;
    std::int64_t first_pixel;
  };
  __device__ Group group(std::int64_t index) const {
    const std::int64_t image = quotient(index, image_groups);
    const int first = static_cast<int>(index - image * image_groups) * rows;
    return {image, first, min(rows, height - first) * width, (image * height + first) * width};
  }

  // Copies what the group needs into shared memory, zeros where the image ends. The calling block's threads share it.
  __device__ void load(const bfloat16* source, const Group& group, bfloat16* patch) const {
    const int row_size = patch_row_size();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warps = static_cast<int>(blockDim.x) / 32;
    for (int row = static_cast<int>(threadIdx.x) / 32; row < patch_rows(); row += warps) {
      const int source_row = group.first_row * stride - padding + row;
      const bool inside = source_row >= 0 && source_row < source_height;
      const bfloat16* const from = source + (group.image * source_height + source_row) * source_width * depth;
#pragma unroll 8
      for (int i = lane; i < row_size; i += 32) {
        const int at = i - padding * depth;
        patch[row * row_size + i] = inside && at >= 0 && at < source_width * depth ? from[at] : bfloat16{0};
      }
    }
  }

  // Where in the patch the window of a group's pixel begins.
  __device__ int window(int pixel) const {
    const int row = pixel / width;
    return (row * patch_row_size() + (pixel - row * width) * depth) * stride;
  }
  // From there to product k.
  __device__ int offset(int k) const {
    const int run = kernel_columns * depth;
    return k / run * patch_row_size() + k % run;
  }
};

}  // namespace lockstep::kernels::cuda
