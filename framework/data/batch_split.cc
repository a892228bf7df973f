#include "framework/data/batch_split.h"

#include <string>

#include "framework/core/error.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMaxFactor = std::int64_t{1} << 20;  // the product of three fits an int64

void require_range(const char* what, std::optional<std::int64_t> value, std::int64_t largest) {
  if (!value) return;
  expect(*value >= 1 && *value <= largest, "batch: expected {} between 1 and {}, got {}", what, largest, *value);
}

// global / unit, where it divides.
std::int64_t divide(std::int64_t global, std::int64_t unit, const std::string& factors) {
  const std::int64_t below = global / unit * unit;
  const std::string nearest = below > 0 ? fmt::format("{} and {}", below, below + unit) : fmt::format("{}", unit);
  expect(global == below, "batch: expected a global batch that is a multiple of {} ({}), got {}; nearest: {}", unit,
         factors, global, nearest);
  return global / unit;
}

}  // namespace

BatchSplit split_batch(const BatchRequest& request, std::int64_t world_size) {
  require_range("a number of ranks", world_size, kMaxFactor);
  require_range("a batch per rank", request.batch_per_rank, kMaxFactor);
  require_range("a number of micro-steps", request.accumulate, kMaxFactor);
  require_range("a global batch", request.global_batch, kMaxFactor * kMaxFactor * kMaxFactor);
  expect(request.global_batch || request.batch_per_rank,
         "batch: expected a global batch or a batch per rank, got neither");

  BatchSplit split{.batch_per_rank = request.batch_per_rank.value_or(1),
                   .accumulate = request.accumulate.value_or(1),
                   .world_size = world_size};
  if (!request.global_batch) return split;
  const std::int64_t global = *request.global_batch;
  const std::string ranks = fmt::format("{} {}", world_size, world_size == 1 ? "rank" : "ranks");
  if (request.batch_per_rank && request.accumulate) {
    expect(split.global_batch() == global,
           "batch: expected a global batch of {} ({} x {} a rank x {} micro-steps), got {}; leave one of the three out",
           split.global_batch(), ranks, split.batch_per_rank, split.accumulate, global);
  } else if (request.batch_per_rank) {
    split.accumulate =
        divide(global, world_size * split.batch_per_rank, fmt::format("{} x {} a rank", ranks, split.batch_per_rank));
    require_range("a number of micro-steps", split.accumulate, kMaxFactor);
  } else {
    split.batch_per_rank =
        divide(global, world_size * split.accumulate,
               split.accumulate == 1 ? ranks : fmt::format("{} x {} micro-steps", ranks, split.accumulate));
    require_range("a batch per rank", split.batch_per_rank, kMaxFactor);
  }
  return split;
}

}  // namespace lockstep
