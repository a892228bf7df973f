// A patch of an image in shared memory, and the offsets in it of what a convolution sums over.
#pragma once

#include <type_traits>

#include "kernels/conv2d.h"
#include "kernels/cuda/mma.cuh"

namespace lockstep::kernels::cuda {

// The sum of each pixel of the target runs over the taps of the kernel and the channels of the source (`depth`). A
// block takes groups of whole rows of the target: their pixels are neighbours in memory.
struct PatchGeometry {
  int height, width;  // of the target
  int source_height, source_width, depth;
  int kernel_rows, kernel_columns, stride, padding;
  int pixel_step;  // elements from a pixel of the patch to the next: depth, or more where that is better for the banks
  int rows;        // of the target in a group
  int image_groups;
  std::int64_t groups;

  // `pixels`: of a group, about; whole rows at least.
  PatchGeometry(const Shape& source, const Shape& target, std::int64_t kernel_height, std::int64_t kernel_width,
                std::int64_t step, std::int64_t zeros, std::int64_t pixels, bool odd_steps = false)
      : height(static_cast<int>(target[1])),
        width(static_cast<int>(target[2])),
        source_height(static_cast<int>(source[1])),
        source_width(static_cast<int>(source[2])),
        depth(static_cast<int>(source[3])),
        kernel_rows(static_cast<int>(kernel_height)),
        kernel_columns(static_cast<int>(kernel_width)),
        stride(static_cast<int>(step)),
        padding(static_cast<int>(zeros)),
        pixel_step(odd_steps ? depth | 1 : depth),
        rows(static_cast<int>(std::clamp<std::int64_t>((pixels + width - 1) / width, 1, height))),
        image_groups((height + rows - 1) / rows),
        groups(target[0] * image_groups) {
    rows = (height + image_groups - 1) / image_groups;  // of like size
  }

  __host__ __device__ int products() const { return kernel_rows * kernel_columns * depth; }
  __host__ __device__ int patch_rows() const { return (rows - 1) * stride + kernel_rows; }
  __host__ __device__ int patch_row_size() const { return ((width - 1) * stride + kernel_columns) * pixel_step; }
  template <class T>
  __host__ __device__ int patch_bytes() const {
    return (patch_rows() * patch_row_size() * static_cast<int>(sizeof(T)) + 15) / 16 * 16;
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

  // Copies what the group needs into shared memory, zeros where the image ends, as it is or as f32. The calling block's
  // threads share it.
  template <class T, class P>
  __device__ void load(const T* source, const Group& group, P* patch) const {
    constexpr int kBatch = 8;  // elements of a thread that are under way at once
    const int threads = static_cast<int>(blockDim.x);
    const int pitch = source_width * depth;                      // of a row of the source
    const int elements = patch_row_size() / pixel_step * depth;  // of a row of the patch
    const int step_rows = threads / elements;
    const int step_columns = threads - step_rows * elements;
    const T* const image = source + group.image * source_height * pitch;
    int row = static_cast<int>(threadIdx.x) / elements;
    int column = static_cast<int>(threadIdx.x) - row * elements;
    while (row < patch_rows()) {
      T values[kBatch];
      int places[kBatch];  // in the patch; negative: behind its end
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int source_row = group.first_row * stride - padding + row;
        const int at = column - padding * depth;
        const bool is_place = row < patch_rows();
        const bool inside = is_place && source_row >= 0 && source_row < source_height && at >= 0 && at < pitch;
        values[k] = inside ? image[static_cast<std::int64_t>(source_row) * pitch + at] : T{0};
        const int gaps = pixel_step == depth ? 0 : column / depth * (pixel_step - depth);
        places[k] = is_place ? row * patch_row_size() + column + gaps : -1;
        row += step_rows;
        column += step_columns;
        if (column >= elements) {
          column -= elements;
          ++row;
        }
      }
      all_loads_begun();
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        if (places[k] < 0) continue;
        if constexpr (std::is_same_v<T, P>) {
          patch[places[k]] = values[k];
        } else {
          patch[places[k]] = to_float(values[k]);
        }
      }
    }
  }

  // Where in the patch the window of a group's pixel begins.
  __device__ int window(int pixel) const {
    const int row = pixel / width;
    return (row * patch_row_size() + (pixel - row * width) * pixel_step) * stride;
  }
  // From there to product k.
  __device__ int offset(int k) const {
    const int tap = k / depth;
    return tap / kernel_columns * patch_row_size() + tap % kernel_columns * pixel_step + k - tap * depth;
  }
};

}  // namespace lockstep::kernels::cuda
