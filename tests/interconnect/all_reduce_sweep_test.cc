#include "framework/interconnect/all_reduce_sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "framework/core/tensor.h"
#include "framework/interconnect/emulated_group.h"
#include "tests/support/worlds.h"

namespace lockstep {
namespace {

// Hands on to another group, and spoils one element of what an all-reduce of more than 100 gives.
class FaultyGroup final : public ProcessGroup {
 public:
  explicit FaultyGroup(ProcessGroup& group) : ProcessGroup(group.rank(), group.size()), group_(group) {}
  std::string_view backend() const override { return group_.backend(); }
  void abort(const std::string& reason) override { group_.abort(reason); }

 protected:
  Work issue(const Collective& collective) override {
    const Work work = issue_on(group_, collective);
    work.wait();
    if (collective.kind == Collective::Kind::all_reduce && collective.out.numel() > 100) {
      static_cast<float*>(collective.out.data)[77] += 1;
    }
    return work;
  }

 private:
  ProcessGroup& group_;
};

TEST(AllReduceSweep, TimesAndChecksEverySize) {
  run_local_world(3, [](ProcessGroup& group) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
        AllReduceSweep sweep(group, 40'000, {.dtype = dtype, .op = op, .iterations = 3});
        for (const std::int64_t bytes : {4, 4000, 40'000}) {
          const AllReduceRow row = sweep.measure(bytes);
          EXPECT_EQ(row.bytes, bytes);
          for (const AllReduceTimes& times : {row.out_of_place, row.in_place}) {
            EXPECT_EQ(times.wrong, 0);
            EXPECT_GT(times.us, 0);
            EXPECT_LE(times.min_us, times.median_us);
            EXPECT_LE(times.median_us, times.max_us);
          }
        }
      }
    }
  });
}

TEST(AllReduceSweep, CountsWrongElementsOfAllRanks) {
  run_local_world(2, [](ProcessGroup& group) {
    FaultyGroup faulty(group);
    AllReduceSweep sweep(faulty, 4000, {.iterations = 2});
    EXPECT_EQ(sweep.measure(4000).out_of_place.wrong, 2);
    EXPECT_EQ(sweep.measure(4000).in_place.wrong, 2);
    EXPECT_EQ(sweep.measure(40).in_place.wrong, 0);
    EXPECT_EQ(AllReduceSweep(faulty, 4000, {.iterations = 2, .check = false}).measure(4000).in_place.wrong, -1);
  });
}

TEST(AllReduceSweep, MeasuresWhatALinkTakes) {
  run_local_world(2, [](ProcessGroup& carrier) {
    // 10 ms an all-reduce and 10 ms a million bytes.
    EmulatedGroup group(carrier, {.link = "slow", .ranks = 2, .regimes = {{1, 1, 1000, 1e-3}}}, 10.0);
    AllReduceSweep sweep(group, 1'000'000, {.iterations = 3});
    const AllReduceRow row = sweep.measure(1'000'000);
    EXPECT_GE(row.in_place.us, 20'000);
    EXPECT_LT(row.in_place.us, 40'000);
    // Between the ends of two on the emulated link, which no scheduler disturbs.
    EXPECT_NEAR(row.out_of_place.median_us, 20'000, 100);
    EXPECT_NEAR(row.in_place.median_us, 20'000, 100);
  });
}

TEST(AllReduceSweep, BusBandwidthAsNcclTestsDefinesIt) {
  EXPECT_DOUBLE_EQ(all_reduce_busbw(1'000'000, 10, 2), 100);
  EXPECT_DOUBLE_EQ(all_reduce_busbw(1'000'000, 10, 8), 175);
  EXPECT_DOUBLE_EQ(all_reduce_busbw(1'000'000, 10, 1), 0);
}

TEST(AllReduceSweep, RefusesWhatItCannotCheck) {
  run_local_world(1, [](ProcessGroup& group) {
    EXPECT_THROW(AllReduceSweep(group, 100, {.dtype = DType::i32}), std::invalid_argument);
    EXPECT_THROW(AllReduceSweep(group, 100, {.iterations = 0}), std::invalid_argument);
    EXPECT_THROW(AllReduceSweep(group, 100, {}).measure(104), std::invalid_argument);
    EXPECT_THROW(AllReduceSweep(group, 100, {}).measure(3), std::invalid_argument);
  });
}

}  // namespace
}  // namespace lockstep
