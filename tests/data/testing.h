// What the tests of this room share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "framework/data/sampler.h"
#include "tests/support/seed.h"

namespace lockstep::testing {

// The text of the std::invalid_argument that `call` throws; a failure where it throws nothing or something else.
template <class Call>
std::string rejection(Call call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected std::invalid_argument, got: " << error.what();
    return {};
  }
  ADD_FAILURE() << "expected std::invalid_argument, nothing was thrown";
  return {};
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
