// Images made from a seed: for tests, benchmarks and machines without data.
#pragma once

#include <cstdint>
#include <memory>

#include "framework/data/dataset.h"

namespace lockstep {

inline constexpr const char* kSyntheticName = "synthetic";  // the name of such a data set starts with it

struct SyntheticOptions {
  Shape sample_shape = {28, 28, 1};  // (H, W, C)
  int num_classes = 10;
  std::int64_t size = 60000;
  std::uint64_t seed = 0;
  Split split = Split::train;  // same classes, other samples
};

// Each class is a pattern of up to 4 x 4 fields of random brightness per channel, each sample its class's pattern with
// noise on every pixel, so that a model learns it in some dozens of steps. Sample i has class i mod num_classes. The
// same seed gives the same bytes on every platform; nothing is stored but the patterns. Throws std::invalid_argument
// where a number is below 1, the shape is not (H, W, C) or a sample has more than 2^31 elements.
std::unique_ptr<DatasetOf<std::uint8_t>> synthetic_dataset(const SyntheticOptions& options);

}  // namespace lockstep
