#include "framework/data/sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/core/error.h"
#include "framework/data/counter_random.h"

namespace lockstep {
namespace {

void require_at_least_one(const char* what, std::int64_t value) {
  expect(value >= 1, "sampler: expected {} of at least 1, got {}", what, value);
}

void require_rank(std::int64_t rank, std::int64_t world_size) {
  require_at_least_one("a world size", world_size);
  expect(rank >= 0 && rank < world_size, "sampler: expected a rank between 0 and {}, got {}", world_size - 1, rank);
}

}  // namespace

void shuffle_epoch(std::span<std::int64_t> indices, std::uint64_t seed, std::int64_t epoch) {
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  const std::uint64_t key = stream_key(seed, static_cast<std::uint64_t>(epoch));
  std::uint64_t counter = 0;
  for (std::size_t i = indices.size(); i > 1; --i) std::swap(indices[i - 1], indices[random_below(i, key, counter)]);
}

std::int64_t steps_per_epoch(std::int64_t dataset_size, std::int64_t global_batch, ShortBatch short_batch) {
  return short_batch == ShortBatch::pad ? (dataset_size + global_batch - 1) / global_batch
                                        : dataset_size / global_batch;
}

TrainSampler::TrainSampler(std::int64_t dataset_size, const BatchSplit& split, std::int64_t rank,
                           TrainSamplerOptions options)
    : split_(split), rank_(rank), options_(options) {
  require_at_least_one("a data set", dataset_size);
  require_at_least_one("a batch per rank", split.batch_per_rank);
  require_at_least_one("a number of micro-steps", split.accumulate);
  require_rank(rank, split.world_size);
  const std::int64_t global = split.global_batch();
  steps_per_epoch_ = lockstep::steps_per_epoch(dataset_size, global, options.short_batch);
  expect(steps_per_epoch_ > 0,
         "sampler: expected a global batch of at most {}, the data set's size, got {}; lower it or pad short batches",
         dataset_size, global);
  order_.resize(static_cast<std::size_t>(dataset_size));
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
}

Position TrainSampler::position_of(std::int64_t global_step) const {
  return {.epoch = global_step / steps_per_epoch_, .step = global_step % steps_per_epoch_};
}

void TrainSampler::seek(const Position& position) {
  expect(position.epoch >= 0 && position.step >= 0 && position.step < steps_per_epoch_ && position.micro >= 0 &&
             position.micro < split_.accumulate,
         "sampler: expected a position in an epoch of {} steps of {} micro-steps, got epoch {}, step {}, micro-step {}",
         steps_per_epoch_, split_.accumulate, position.epoch, position.step, position.micro);
  position_ = position;
}

SampledBatch TrainSampler::next(std::span<std::int64_t> indices) {
  if (options_.shuffle && order_epoch_ != position_.epoch) {
    shuffle_epoch(order_, options_.seed, position_.epoch);
    order_epoch_ = position_.epoch;
  }
  const SampledBatch batch{
      .count = split_.batch_per_rank, .first = split_.first_sample(rank_, position_.micro), .position = position_};
  auto place = static_cast<std::size_t>(position_.step * split_.global_batch() + batch.first) % order_.size();
  for (std::int64_t& index : indices.first(static_cast<std::size_t>(batch.count))) {
    index = order_[place];
    if (++place == order_.size()) place = 0;
  }

  if (++position_.micro == split_.accumulate) {
    position_.micro = 0;
    if (++position_.step == steps_per_epoch_) position_ = {.epoch = position_.epoch + 1};
  }
  return batch;
}

EvalSampler::EvalSampler(std::int64_t dataset_size, std::int64_t batch_size, std::int64_t rank, std::int64_t world_size)
    : batch_size_(batch_size) {
  require_at_least_one("a data set", dataset_size);
  require_at_least_one("a batch", batch_size);
  require_rank(rank, world_size);
  next_index_ = dataset_size * rank / world_size;
  end_ = dataset_size * (rank + 1) / world_size;
}

SampledBatch EvalSampler::next(std::span<std::int64_t> indices) {
  const SampledBatch batch{
      .count = std::min(batch_size_, end_ - next_index_), .first = next_index_, .position = {.step = step_}};
  const auto filled = indices.first(static_cast<std::size_t>(batch.count));
  std::iota(filled.begin(), filled.end(), next_index_);
  next_index_ += batch.count;
  ++step_;
  return batch;
}

}  // namespace lockstep
