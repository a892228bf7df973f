// IDX files, the format of MNIST and its successors, plain or gzip: a magic number (two zero bytes, the element type,
// the number of dimensions), the big-endian 32-bit extents, then the elements.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "framework/data/dataset.h"

namespace lockstep {

// Where Debian's package dataset-fashion-mnist puts its files.
inline constexpr const char* kFashionMnistPath = "/usr/share/datasets/fashion-mnist";

struct IdxArray {
  Shape shape;
  std::unique_ptr<std::uint8_t[]> data;
};

// Reads a whole IDX file of u8 elements and `rank` dimensions.
// Throws std::invalid_argument ("file: expected ..., found ..., at offset ...", counted in decompressed bytes) for a
// file that is missing, no such array, truncated, too long or corrupt.
IdxArray read_idx(const std::filesystem::path& file, int rank);

// The data set of an image file (N, H, W) and a label file (N). `expected` gives name, classes and normalisation; its
// size is ignored, and so is its sample shape, (H, W, 1), where that has no dimension.
// Throws std::invalid_argument as read_idx does, also where the files do not match each other or `expected`.
std::unique_ptr<DatasetOf<std::uint8_t>> read_idx_dataset(const std::filesystem::path& images,
                                                          const std::filesystem::path& labels,
                                                          const DatasetInfo& expected);

// Fashion-MNIST (28, 28, 1) in 10 classes, 60 000 samples to train and 10 000 to test, from the four files in
// `directory`, each plain or .gz.
std::unique_ptr<DatasetOf<std::uint8_t>> fashion_mnist(const std::filesystem::path& directory, Split split);

}  // namespace lockstep
