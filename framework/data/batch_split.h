// How a global batch is split over ranks and micro-steps: G = B x A x N.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

struct BatchSplit {
  std::int64_t batch_per_rank = 1;  // B, samples of one rank in one micro-step
  std::int64_t accumulate = 1;      // A, micro-steps per step
  std::int64_t world_size = 1;      // N, ranks

  std::int64_t global_batch() const { return batch_per_rank * accumulate * world_size; }
  // Where in the global batch the B samples of `rank` in micro-step `micro` begin. Whatever N is, the same G therefore
  // holds the same samples, each at the same place.
  std::int64_t first_sample(std::int64_t rank, std::int64_t micro) const {
    return (micro * world_size + rank) * batch_per_rank;
  }
};

// What the user asked for; at least one of global_batch and batch_per_rank.
struct BatchRequest {
  std::optional<std::int64_t> global_batch = {};
  std::optional<std::int64_t> batch_per_rank = {};
  std::optional<std::int64_t> accumulate = {};
};

// Any two of a request give the third; without accumulate, and with only one of the others, A is 1.
// Throws std::invalid_argument, with the nearest global batches that divide, where they do not fit together.
BatchSplit split_batch(const BatchRequest& request, std::int64_t world_size);

}  // namespace lockstep
