#include "framework/data/batch_split.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>

#include "tests/data/testing.h"

namespace lockstep {
namespace {

using testing::rejection;

void expect_split(const BatchRequest& request, std::int64_t world_size, std::int64_t batch, std::int64_t accumulate) {
  const BatchSplit split = split_batch(request, world_size);
  EXPECT_EQ(split.batch_per_rank, batch);
  EXPECT_EQ(split.accumulate, accumulate);
  EXPECT_EQ(split.world_size, world_size);
  EXPECT_EQ(split.global_batch(), batch * accumulate * world_size);
}

TEST(BatchSplit, AnyTwoGiveTheThird) {
  expect_split({.global_batch = 64}, 2, 32, 1);
  expect_split({.batch_per_rank = 16}, 3, 16, 1);
  expect_split({.global_batch = 96, .batch_per_rank = 8}, 3, 8, 4);
  expect_split({.global_batch = 96, .accumulate = 2}, 3, 16, 2);
  expect_split({.batch_per_rank = 5, .accumulate = 7}, 4, 5, 7);
  expect_split({.global_batch = 24, .batch_per_rank = 4, .accumulate = 3}, 2, 4, 3);
}

TEST(BatchSplit, NamesTheNearestThatDivide) {
  EXPECT_EQ(rejection([] { split_batch({.global_batch = 64}, 3); }),
            "batch: expected a global batch that is a multiple of 3 (3 ranks), got 64; nearest: 63 and 66");
  EXPECT_EQ(
      rejection([] { split_batch({.global_batch = 64, .accumulate = 3}, 2); }),
      "batch: expected a global batch that is a multiple of 6 (2 ranks x 3 micro-steps), got 64; nearest: 60 and 66");
  EXPECT_EQ(
      rejection([] { split_batch({.global_batch = 100, .batch_per_rank = 48}, 1); }),
      "batch: expected a global batch that is a multiple of 48 (1 rank x 48 a rank), got 100; nearest: 96 and 144");
  EXPECT_EQ(rejection([] { split_batch({.global_batch = 3}, 4); }),
            "batch: expected a global batch that is a multiple of 4 (4 ranks), got 3; nearest: 4");
}

TEST(BatchSplit, RejectsContradictionsAndNonsense) {
  EXPECT_EQ(rejection([] { split_batch({.global_batch = 32, .batch_per_rank = 4, .accumulate = 3}, 2); }),
            "batch: expected a global batch of 24 (2 ranks x 4 a rank x 3 micro-steps), got 32; leave one of the three "
            "out");
  EXPECT_NE(rejection([] { split_batch({}, 2); }).find("neither"), std::string::npos);
  EXPECT_NE(rejection([] { split_batch({.accumulate = 2}, 2); }).find("neither"), std::string::npos);
  EXPECT_NE(rejection([] { split_batch({.global_batch = 8}, 0); }).find("ranks"), std::string::npos);
  EXPECT_NE(rejection([] { split_batch({.global_batch = -8}, 2); }).find("global batch"), std::string::npos);
  EXPECT_NE(rejection([] { split_batch({.batch_per_rank = 0}, 2); }).find("batch per rank"), std::string::npos);
  EXPECT_NE(rejection([] { split_batch({.batch_per_rank = 1, .accumulate = 0}, 2); }).find("micro-steps"),
            std::string::npos);
  // Every factor fits, their product would not without the limit.
  EXPECT_NE(rejection([] {
              split_batch({.batch_per_rank = std::int64_t{1} << 40, .accumulate = 1 << 20}, 16);
            }).find("batch per rank"),
            std::string::npos);
}

TEST(BatchSplit, FirstSamplesTileTheGlobalBatch) {
  const BatchSplit split{.batch_per_rank = 4, .accumulate = 3, .world_size = 2};
  std::set<std::int64_t> begins;
  for (std::int64_t micro = 0; micro < 3; ++micro) {
    for (std::int64_t rank = 0; rank < 2; ++rank) begins.insert(split.first_sample(rank, micro));
  }
  EXPECT_EQ(begins, (std::set<std::int64_t>{0, 4, 8, 12, 16, 20}));
  EXPECT_EQ(split.first_sample(1, 0), 4);
  EXPECT_EQ(split.first_sample(0, 1), 8);
}

}  // namespace
}  // namespace lockstep
