// What the tests of this room share.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "framework/data/sampler.h"
#include "tests/support/seed.h"
#include "tests/support/thrown_by.h"

namespace lockstep::testing {

template <class Call>
std::string rejection(const Call& call) {
  return thrown_by<std::invalid_argument>(call);
}

// The indices of the sampler's next batch.
inline std::vector<std::int64_t> next_indices(Sampler& sampler, SampledBatch* batch = nullptr) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(sampler.batch_size()));
  const SampledBatch sampled = sampler.next(indices);
  indices.resize(static_cast<std::size_t>(sampled.count));
  if (batch != nullptr) *batch = sampled;
  return indices;
}

}  // namespace lockstep::testing
