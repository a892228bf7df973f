// Random inputs, drawn from the seed of this run.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/seed.h"

namespace lockstep::testing {

// Uniform in [low, high). `stream` separates the inputs of one test.
template <class T = double>
std::vector<T> random_values(std::int64_t count, double low, double high, std::uint64_t stream = 0) {
  std::mt19937_64 random(test_seed() + 0x9e3779b97f4a7c15U * (stream + 1));
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = static_cast<T>(uniform(random));
  return values;
}

inline std::vector<std::int32_t> random_indices(std::int64_t count, std::int32_t limit, std::uint64_t stream = 0) {
  std::vector<std::int32_t> indices;
  for (const double value : random_values(count, 0, limit, stream)) {
    indices.push_back(static_cast<std::int32_t>(value));
  }
  return indices;
}

}  // namespace lockstep::testing
