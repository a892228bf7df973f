// A patch of an image in shared memory, and the offsets in it of what a convolution sums over.
#pragma once

#include <type_traits>

#include "kernels/conv2d.h"
#include "kernels/cuda/divisor.cuh"
#include "kernels/cuda/mma.cuh"

namespace lockstep::kernels::cuda {

// Grids and groups are sized for a GPU of so many multiprocessors (H100 and H200), whichever it is: sums that follow
// them are the same on every GPU.
inline constexpr int kSms = 132;

// What neighbouring lanes of a warp read of a patch, side by side: it is laid out so that they use different banks.
enum class Lanes { none, pixels, products };

// Where an element is gathered from; where it does not exist it is 0.
struct Origin {
  bool exists;
  int at;
};

// to[i] = source[origin(i).at] for all i < count, as it is or as f32. The calling block's threads share it. f32 is
// copied without waiting: it is there after wait_for_copies<0>.
template <class T, class P, class OriginOf>
__device__ void gather(const T* source, int count, P* to, OriginOf origin_of) {
  const int first = static_cast<int>(threadIdx.x);
  const int step = static_cast<int>(blockDim.x);
  if constexpr (std::is_same_v<T, float>) {
#pragma unroll 1
    for (int i = first; i < count; i += step) {
      const Origin origin = origin_of(i);
      copy_async<sizeof(T)>(to + i, source + (origin.exists ? origin.at : 0), !origin.exists);
    }
    commit_copies();
  } else {
    in_batches<4>(
        first, count, step,
        [&](int i) {
          const Origin origin = origin_of(i);
          return origin.exists ? source[origin.at] : T{0};
        },
        [&](int i, T value) {
          if constexpr (std::is_same_v<T, P>) {
            to[i] = value;
          } else {
            to[i] = to_float(value);
          }
        });
  }
}

// The sum of each pixel of the target runs over the taps of the kernel and the channels of the source (`depth`). A
// block takes groups of whole rows of the target: their pixels are neighbours in memory.
struct PatchGeometry {
  int height;  // of the target
  Divisor width;
  int source_height, source_width;
  Divisor depth;
  int kernel_rows;
  Divisor kernel_columns;
  int stride, padding;
  Divisor pixel_step;  // elements from a pixel of the patch to the next: depth, or more for the banks
  Divisor row_step;    // the same of its rows
  int rows;            // of the target in a group
  int image_groups;
  std::int64_t groups;

  // `pixels`: of a group, about; whole rows at least.
  PatchGeometry(const Shape& source, const Shape& target, std::int64_t kernel_height, std::int64_t kernel_width,
                std::int64_t step, std::int64_t zeros, std::int64_t pixels, Lanes lanes = Lanes::none)
      : height(static_cast<int>(target[1])),
        width(static_cast<int>(target[2])),
        source_height(static_cast<int>(source[1])),
        source_width(static_cast<int>(source[2])),
        depth(static_cast<int>(source[3])),
        kernel_rows(static_cast<int>(kernel_height)),
        kernel_columns(static_cast<int>(kernel_width)),
        stride(static_cast<int>(step)),
        padding(static_cast<int>(zeros)),
        pixel_step(lanes == Lanes::pixels ? depth | 1 : depth),
        row_step(((width - 1) * stride + kernel_columns) * pixel_step),
        rows(static_cast<int>(std::clamp<std::int64_t>((pixels + target[2] - 1) / target[2], 1, height))),
        image_groups((height + rows - 1) / rows),
        groups(target[0] * image_groups) {
    rows = (height + image_groups - 1) / image_groups;  // of like size
    if (lanes == Lanes::none) return;
    // The first of the next row lies in the bank behind the last of this one.
    constexpr int kBanks = 32;
    const int row = lanes == Lanes::pixels ? width * stride * pixel_step : kernel_columns * pixel_step;
    row_step = Divisor(row_step + ((row - row_step) % kBanks + kBanks) % kBanks);
  }

  __host__ __device__ int products() const { return kernel_rows * kernel_columns * depth; }
  __host__ __device__ int patch_rows() const { return (rows - 1) * stride + kernel_rows; }
  template <class T>
  __host__ __device__ int patch_bytes() const {
    return (patch_rows() * row_step * static_cast<int>(sizeof(T)) + 15) / 16 * 16;
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

  // Gathers what the group needs in shared memory, zeros where the image ends.
  template <class T, class P>
  __device__ void load(const T* source, const Group& group, P* patch) const {
    const int first_row = group.first_row * stride - padding;
    gather(source + group.image * source_height * source_width * depth, patch_rows() * row_step, patch, [&](int i) {
      const int patch_row = i / row_step;
      const int place = i - patch_row * row_step;
      const int patch_column = place / pixel_step;
      const int d = place - patch_column * pixel_step;
      const int row = first_row + patch_row;
      const int column = patch_column - padding;
      const bool inside = row >= 0 && row < source_height && column >= 0 && column < source_width && d < depth;
      return Origin{inside, (row * source_width + column) * depth + d};
    });
  }

  // Where in the patch the window of a group's pixel begins.
  __device__ int window(int pixel) const {
    const int row = pixel / width;
    return (row * row_step + (pixel - row * width) * pixel_step) * stride;
  }
  // From there to product k.
  __device__ int offset(int k) const {
    const int tap = k / depth;
    const int row = tap / kernel_columns;
    return row * row_step + (tap - row * kernel_columns) * pixel_step + k - tap * depth;
  }
};

}  // namespace lockstep::kernels::cuda
