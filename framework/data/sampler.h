// Which samples of a data set make which batch of which rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/data/batch_split.h"

namespace lockstep {

// Where in training a batch belongs. (epoch, step) with micro 0 is all that a resume needs.
struct Position {
  std::int64_t epoch = 0;
  std::int64_t step = 0;   // within the epoch
  std::int64_t micro = 0;  // within the step

  bool operator==(const Position&) const = default;
};

struct SampledBatch {
  std::int64_t count = 0;  // samples; 0 after the last batch
  std::int64_t first = 0;  // training: place of sample 0 in the global batch; evaluation: its place in the data set
  Position position = {};
};

// The batches of one rank, one after the other.
class Sampler {
 public:
  virtual ~Sampler() = default;
  // The most samples that a batch has.
  virtual std::int64_t batch_size() const = 0;
  // Writes the data set's indices of the next batch to the front of `indices` (batch_size() of them at least).
  virtual SampledBatch next(std::span<std::int64_t> indices) = 0;
};

// What happens to the samples at the end of an epoch that fill no global batch.
enum class ShortBatch : std::uint8_t {
  drop,  // they sit this epoch out; the next one shuffles anew
  pad,   // the last global batch is filled up from the head of the same epoch
};

// Steps of an epoch with a global batch of `global_batch` samples.
std::int64_t steps_per_epoch(std::int64_t dataset_size, std::int64_t global_batch, ShortBatch short_batch);

struct TrainSamplerOptions {
  std::uint64_t seed = 0;
  ShortBatch short_batch = ShortBatch::drop;
  bool shuffle = true;
};

// Endless batches of full size, reshuffled each epoch by (seed, epoch) alone, so that ranks agree without a word.
// Step s covers places [s*G, (s+1)*G) of the epoch's order; of these, micro-step a of rank r takes the B that begin at
// BatchSplit::first_sample(r, a). N ranks with B/N therefore see what one rank with B sees.
class TrainSampler : public Sampler {
 public:
  // Throws std::invalid_argument where rank or split is out of range, or where an epoch would have no step.
  TrainSampler(std::int64_t dataset_size, const BatchSplit& split, std::int64_t rank, TrainSamplerOptions options = {});

  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  // The position of a step that is counted from the start of training.
  Position position_of(std::int64_t global_step) const;
  // The next batch will be that of `position`: how a resumed training goes on.
  void seek(const Position& position);

  std::int64_t batch_size() const override { return split_.batch_per_rank; }
  SampledBatch next(std::span<std::int64_t> indices) override;

 private:
  BatchSplit split_;
  std::int64_t rank_;
  TrainSamplerOptions options_;
  std::int64_t steps_per_epoch_;
  Position position_;
  std::int64_t order_epoch_ = -1;
  std::vector<std::int64_t> order_;  // the data set's indices in the order of order_epoch_
};

// Every sample exactly once over all ranks, in the data set's order: rank r takes the r-th of N contiguous shares
// (sizes differ by at most one) in batches of at most B. Shares may need different numbers of batches, so no collective
// belongs between them.
class EvalSampler : public Sampler {
 public:
  EvalSampler(std::int64_t dataset_size, std::int64_t batch_size, std::int64_t rank, std::int64_t world_size);

  std::int64_t batch_size() const override { return batch_size_; }
  SampledBatch next(std::span<std::int64_t> indices) override;

 private:
  std::int64_t batch_size_;
  std::int64_t next_index_;
  std::int64_t end_;
  std::int64_t step_ = 0;
};

// Orders `indices` as 0 .. size-1 and shuffles them (Fisher and Yates) as (seed, epoch) say, on every platform alike.
void shuffle_epoch(std::span<std::int64_t> indices, std::uint64_t seed, std::int64_t epoch);

}  // namespace lockstep
