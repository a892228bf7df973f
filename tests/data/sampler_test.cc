#include "framework/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/data/testing.h"

namespace lockstep {
namespace {

using testing::next_indices;
using testing::rejection;
using testing::test_seed;
using Indices = std::vector<std::int64_t>;

Indices shuffled(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  Indices indices(static_cast<std::size_t>(size));
  shuffle_epoch(indices, seed, epoch);
  return indices;
}

Indices sorted(Indices indices) {
  std::ranges::sort(indices);
  return indices;
}

Indices identity(std::int64_t size) {
  Indices indices(static_cast<std::size_t>(size));
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  return indices;
}

// All ranks' samples of the next step, by their place in the global batch.
Indices next_global_batch(std::vector<TrainSampler>& ranks, const BatchSplit& split) {
  Indices global(static_cast<std::size_t>(split.global_batch()), -1);
  for (std::int64_t micro = 0; micro < split.accumulate; ++micro) {
    for (TrainSampler& rank : ranks) {
      SampledBatch batch;
      const Indices indices = next_indices(rank, &batch);
      EXPECT_EQ(batch.position.micro, micro);
      std::ranges::copy(indices, global.begin() + batch.first);
    }
  }
  return global;
}

std::vector<TrainSampler> make_ranks(std::int64_t size, const BatchSplit& split, TrainSamplerOptions options) {
  std::vector<TrainSampler> ranks;
  for (std::int64_t rank = 0; rank < split.world_size; ++rank) ranks.emplace_back(size, split, rank, options);
  return ranks;
}

// From an implementation in Python, written from the definition: orders must be the same on every platform and for
// every release, or a resumed training sees other batches.
TEST(Shuffle, KeepsItsOrderForEver) {
  EXPECT_EQ(shuffled(20, 42, 0), (Indices{1, 16, 2, 17, 6, 9, 4, 12, 8, 0, 3, 13, 14, 10, 18, 5, 15, 19, 11, 7}));
  EXPECT_EQ(shuffled(20, 42, 1), (Indices{4, 6, 15, 9, 14, 8, 13, 16, 19, 18, 3, 2, 17, 7, 12, 10, 5, 11, 0, 1}));
  EXPECT_EQ(shuffled(20, 0, 0), (Indices{13, 2, 4, 14, 19, 11, 3, 5, 17, 18, 8, 10, 12, 7, 0, 16, 9, 1, 6, 15}));
}

TEST(Shuffle, IsAPermutationThatSeedAndEpochChange) {
  const std::uint64_t seed = test_seed();
  for (const std::int64_t size : {1, 2, 3, 17, 1000}) EXPECT_EQ(sorted(shuffled(size, seed, 3)), identity(size));
  EXPECT_NE(shuffled(1000, seed, 0), shuffled(1000, seed, 1));
  EXPECT_NE(shuffled(1000, seed, 0), shuffled(1000, seed + 1, 0));
}

TEST(Shuffle, MakesEveryOrderEquallyLikely) {
  const std::uint64_t seed = test_seed();
  std::map<Indices, int> counts;
  for (std::int64_t epoch = 0; epoch < 24 * 1000; ++epoch) ++counts[shuffled(4, seed, epoch)];
  ASSERT_EQ(counts.size(), 24U);
  // Six standard deviations of a count of mean 1000.
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 190);
}

// Against the definition: place (s*G + (a*N + r)*B + j) of the epoch's order.
TEST(TrainSampler, GivesEachRankItsSliceOfTheGlobalBatch) {
  const std::uint64_t seed = test_seed();
  const BatchSplit split{.batch_per_rank = 3, .accumulate = 2, .world_size = 4};
  const std::int64_t global = 24;
  const std::int64_t size = 101;
  for (std::int64_t r = 0; r < 4; ++r) {
    TrainSampler sampler(size, split, r, {.seed = seed});
    ASSERT_EQ(sampler.steps_per_epoch(), 4);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      const Indices order = shuffled(size, seed, epoch);
      for (std::int64_t s = 0; s < 4; ++s) {
        for (std::int64_t a = 0; a < 2; ++a) {
          SampledBatch batch;
          const Indices indices = next_indices(sampler, &batch);
          ASSERT_EQ(batch.count, 3);
          EXPECT_EQ(batch.first, (a * 4 + r) * 3);
          EXPECT_EQ(batch.position, (Position{epoch, s, a}));
          for (std::int64_t j = 0; j < 3; ++j) {
            EXPECT_EQ(indices[static_cast<std::size_t>(j)],
                      order[static_cast<std::size_t>(s * global + (a * 4 + r) * 3 + j)]);
          }
        }
      }
    }
  }
}

TEST(TrainSampler, GlobalBatchDoesNotDependOnRanksOrAccumulation) {
  const TrainSamplerOptions options{.seed = test_seed()};
  const BatchSplit whole{.batch_per_rank = 24};
  for (std::int64_t world_size : {1, 2, 3, 4}) {
    for (std::int64_t accumulate : {1, 2, 3}) {
      if (24 % (world_size * accumulate) != 0) continue;
      const BatchSplit split = split_batch({.global_batch = 24, .accumulate = accumulate}, world_size);
      auto one = make_ranks(100, whole, options);
      auto many = make_ranks(100, split, options);
      for (int step = 0; step < 10; ++step) {
        EXPECT_EQ(next_global_batch(many, split), next_global_batch(one, whole)) << world_size << " x " << accumulate;
      }
    }
  }
}

TEST(TrainSampler, EpochsMoveByThemselvesAndCoverTheSetOnce) {
  const BatchSplit split{.batch_per_rank = 5, .accumulate = 2, .world_size = 2};
  auto ranks = make_ranks(60, split, {.seed = test_seed()});
  std::set<Indices> orders;
  for (int epoch = 0; epoch < 4; ++epoch) {
    Indices seen;
    for (std::int64_t step = 0; step < ranks[0].steps_per_epoch(); ++step) {
      std::ranges::copy(next_global_batch(ranks, split), std::back_inserter(seen));
    }
    EXPECT_EQ(sorted(seen), identity(60));
    orders.insert(seen);
  }
  EXPECT_EQ(orders.size(), 4U);
}

TEST(TrainSampler, SeekContinuesAsIfNeverStopped) {
  const TrainSamplerOptions options{.seed = test_seed()};
  const BatchSplit split{.batch_per_rank = 4, .accumulate = 2, .world_size = 2};
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    TrainSampler whole(70, split, rank, options);
    ASSERT_EQ(whole.steps_per_epoch(), 4);
    for (std::int64_t step = 0; step < 11; ++step) {
      TrainSampler resumed(70, split, rank, options);
      resumed.seek(resumed.position_of(step));
      TrainSampler whole_from_here = whole;
      for (int i = 0; i < 20; ++i) {
        SampledBatch expected;
        SampledBatch got;
        ASSERT_EQ(next_indices(resumed, &got), next_indices(whole_from_here, &expected));
        ASSERT_EQ(got.position, expected.position);
      }
      for (std::int64_t micro = 0; micro < split.accumulate; ++micro) next_indices(whole);
    }
  }
}

TEST(TrainSampler, ResumeOnOtherRanksSeesTheSameGlobalBatches) {
  const TrainSamplerOptions options{.seed = test_seed()};
  const BatchSplit before{.batch_per_rank = 3, .world_size = 4};
  const BatchSplit after{.batch_per_rank = 6, .accumulate = 2, .world_size = 1};
  auto uninterrupted = make_ranks(50, before, options);
  for (int step = 0; step < 6; ++step) next_global_batch(uninterrupted, before);
  auto resumed = make_ranks(50, after, options);
  resumed[0].seek({.epoch = 1, .step = 2});  // 4 steps an epoch
  for (int step = 0; step < 9; ++step) {
    EXPECT_EQ(next_global_batch(resumed, after), next_global_batch(uninterrupted, before));
  }
}

// Lengths that no number of batches fits: neither choice leaves a rank without its batch.
TEST(TrainSampler, UnevenLengthsDropOrPad) {
  const std::uint64_t seed = test_seed();
  const BatchSplit split{.batch_per_rank = 2, .world_size = 2};
  for (const std::int64_t size : {10, 7}) {
    auto dropping = make_ranks(size, split, {.seed = seed});
    ASSERT_EQ(dropping[0].steps_per_epoch(), size / 4);
    auto padding = make_ranks(size, split, {.seed = seed, .short_batch = ShortBatch::pad});
    ASSERT_EQ(padding[0].steps_per_epoch(), (size + 3) / 4);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      const Indices order = shuffled(size, seed, epoch);
      Indices dropped;
      for (std::int64_t step = 0; step < size / 4; ++step) {
        std::ranges::copy(next_global_batch(dropping, split), std::back_inserter(dropped));
      }
      EXPECT_EQ(dropped, Indices(order.begin(), order.begin() + size / 4 * 4));

      Indices padded;
      for (std::int64_t step = 0; step < (size + 3) / 4; ++step) {
        std::ranges::copy(next_global_batch(padding, split), std::back_inserter(padded));
      }
      Indices wrapped = order;
      wrapped.insert(wrapped.end(), order.begin(), order.begin() + ((size + 3) / 4 * 4 - size));
      EXPECT_EQ(padded, wrapped);
    }
  }
}

TEST(TrainSampler, PadsABatchLargerThanTheSet) {
  TrainSampler sampler(3, {.batch_per_rank = 8}, 0, {.short_batch = ShortBatch::pad, .shuffle = false});
  EXPECT_EQ(sampler.steps_per_epoch(), 1);
  EXPECT_EQ(next_indices(sampler), (Indices{0, 1, 2, 0, 1, 2, 0, 1}));
  EXPECT_EQ(next_indices(sampler), (Indices{0, 1, 2, 0, 1, 2, 0, 1}));
}

TEST(TrainSampler, RejectsWhatCannotWork) {
  const BatchSplit split{.batch_per_rank = 5, .world_size = 2};
  EXPECT_EQ(
      rejection([&] { TrainSampler(9, split, 0); }),
      "sampler: expected a global batch of at most 9, the data set's size, got 10; lower it or pad short batches");
  EXPECT_EQ(rejection([&] { TrainSampler(100, split, 2); }), "sampler: expected a rank between 0 and 1, got 2");
  EXPECT_NE(rejection([&] { TrainSampler(0, split, 0); }).find("data set"), std::string::npos);
  EXPECT_NE(rejection([&] { TrainSampler(100, {.batch_per_rank = 0}, 0); }).find("batch per rank"), std::string::npos);
  TrainSampler sampler(100, split, 0);
  EXPECT_NO_THROW(sampler.seek({.epoch = 5, .step = 9}));
  EXPECT_NE(rejection([&] { sampler.seek({.step = 10}); }).find("10 steps"), std::string::npos);
  EXPECT_NE(rejection([&] { sampler.seek({.epoch = -1}); }).find("epoch -1"), std::string::npos);
  EXPECT_NE(rejection([&] { sampler.seek({.micro = 1}); }).find("micro-step 1"), std::string::npos);
}

TEST(EvalSampler, EverySampleOnceOnAnyNumberOfRanks) {
  for (std::int64_t size = 1; size <= 23; ++size) {
    for (std::int64_t world_size = 1; world_size <= 5; ++world_size) {
      for (const std::int64_t batch_size : {1, 2, 4, 64}) {
        Indices seen;
        for (std::int64_t rank = 0; rank < world_size; ++rank) {
          EvalSampler sampler(size, batch_size, rank, world_size);
          std::size_t share = 0;
          bool short_seen = false;
          SampledBatch batch;
          for (Indices indices = next_indices(sampler, &batch); batch.count > 0;
               indices = next_indices(sampler, &batch)) {
            EXPECT_FALSE(short_seen) << "only the last batch may be short";
            short_seen = batch.count < batch_size;
            EXPECT_EQ(batch.first, indices.front());
            share += indices.size();
            std::ranges::copy(indices, std::back_inserter(seen));
          }
          EXPECT_TRUE(next_indices(sampler).empty());
          EXPECT_GE(share, static_cast<std::size_t>(size / world_size));
          EXPECT_LE(share, static_cast<std::size_t>((size + world_size - 1) / world_size));
        }
        EXPECT_EQ(seen, identity(size)) << size << " samples, " << world_size << " ranks, batches of " << batch_size;
      }
    }
  }
}

TEST(EvalSampler, RejectsWhatCannotWork) {
  EXPECT_NE(rejection([] { EvalSampler(10, 0, 0, 1); }).find("batch"), std::string::npos);
  EXPECT_NE(rejection([] { EvalSampler(10, 4, 3, 3); }).find("rank between 0 and 2"), std::string::npos);
  EXPECT_NE(rejection([] { EvalSampler(10, 4, 0, 0); }).find("world size"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
