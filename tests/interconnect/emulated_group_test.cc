// What an emulated link adds to the promises of every group (tests/distributed/process_group_test.cc): its times.
#include "framework/interconnect/emulated_group.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "framework/interconnect/published_links.h"
#include "tests/support/worlds.h"

namespace lockstep {
namespace {

using Clock = Work::Clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// 1 ms of start-up and 1 ms a million bytes, on two ranks.
CostModel slow_link() { return {.link = "slow", .ranks = 2, .regimes = {{1, 1, 1000, 1e-3}}}; }

View bytes(std::vector<std::uint8_t>& buffer) {
  return {buffer.data(), DType::u8, {static_cast<std::int64_t>(buffer.size())}};
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST(EmulatedGroup, EndsNoEarlierThanTheLinkAndNotMuchLater) {
  run_local_world(2, [](ProcessGroup& carrier) {
    EmulatedGroup group(carrier, slow_link(), 20.0);
    std::vector<std::uint8_t> buffer(1'000'000, 1);
    group.barrier().wait();
    const Clock::time_point start = Clock::now();
    const Work work = group.all_reduce(bytes(buffer));
    work.wait();
    EXPECT_EQ(buffer[999'999], 2);
    EXPECT_GE(ms_since(start), 40);
    const auto end = work.finished_at();
    ASSERT_TRUE(end.has_value());
    EXPECT_LT(std::chrono::duration<double>(*end - start).count(), 0.08);
  });
}

TEST(EmulatedGroup, CarriesOneAfterTheOther) {
  run_local_world(2, [](ProcessGroup& carrier) {
    EmulatedGroup group(carrier, slow_link(), 20.0);
    std::vector<std::uint8_t> first(1'000'000), second(500'000);
    group.barrier().wait();
    const Work a = group.all_reduce(bytes(first));
    const Work b = group.all_reduce(bytes(second));
    b.wait();
    EXPECT_TRUE(a.done());
    EXPECT_NEAR(std::chrono::duration<double>(*b.finished_at() - *a.finished_at()).count(), 0.030, 1e-4);
  });
}

TEST(EmulatedGroup, GoesOnWhileItsCallerComputesAndLeavesItTheProcessor) {
  run_local_world(2, [](ProcessGroup& carrier) {
    EmulatedGroup group(carrier, slow_link(), 50.0);
    std::vector<std::uint8_t> buffer(1'000'000);
    group.barrier().wait();
    const Clock::time_point start = Clock::now();
    const Work work = group.all_reduce(bytes(buffer));
    EXPECT_FALSE(work.done());
    sleep_ms(60);  // a backward pass
    timespec before{}, after{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    work.wait();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    EXPECT_GE(ms_since(start), 100);
    EXPECT_LT(std::chrono::duration<double>(*work.finished_at() - start).count(), 0.150) << "60 ms were not hidden";
    const double busy_ms = static_cast<double>(after.tv_sec - before.tv_sec) * 1e3 +
                           static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-6;
    EXPECT_LT(busy_ms, 20);
  });
}

TEST(EmulatedGroup, BeginsWhenTheLastRankComesAndEndsAtOnceForAll) {
  std::vector<Clock::time_point> ends(2);
  Clock::time_point late;
  run_local_world(2, [&](ProcessGroup& carrier) {
    EmulatedGroup group(carrier, slow_link(), 20.0);
    std::vector<std::uint8_t> buffer(1'000'000);
    group.barrier().wait();
    if (group.rank() == 1) {
      sleep_ms(30);
      late = Clock::now();
    }
    const Work work = group.all_reduce(bytes(buffer));
    work.wait();
    ends[static_cast<std::size_t>(group.rank())] = *work.finished_at();
  });
  EXPECT_GE(std::chrono::duration<double>(ends[0] - late).count(), 0.040);
  EXPECT_NEAR(std::chrono::duration<double>(ends[0] - ends[1]).count(), 0, 1e-3);
}

TEST(EmulatedGroup, CountsWhatTheCarrierWasTooSlowFor) {
  run_local_world(2, [](ProcessGroup& carrier) {
    const CostModel fast{.link = "fast", .ranks = 2, .regimes = {{1, 1, 1e-3, 1e-9}}};
    EmulatedGroup group(carrier, fast, 1.0);
    std::vector<std::uint8_t> buffer(100'000);
    group.all_reduce(bytes(buffer)).wait();
    EXPECT_EQ(group.late(), 1);
    EmulatedGroup other(carrier, slow_link(), 20.0);
    other.all_reduce(bytes(buffer)).wait();
    EXPECT_EQ(other.late(), 0);
  });
}

TEST(EmulatedGroup, AbortEndsAWaitForTheLink) {
  run_local_world(2, [](ProcessGroup& carrier) {
    EmulatedGroup group(carrier, slow_link(), 1e4);  // 20 s
    std::vector<std::uint8_t> buffer(1'000'000);
    const Clock::time_point start = Clock::now();
    const Work work = group.all_reduce(bytes(buffer));
    sleep_ms(100);
    std::thread watchdog([&] {
      sleep_ms(20);
      group.abort("enough");
    });
    try {
      work.wait();
      ADD_FAILURE() << "it was not aborted";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("enough"), std::string::npos) << error.what();
    }
    watchdog.join();
    EXPECT_LT(ms_since(start), 10'000);
  });
}

TEST(EmulatedGroup, ChosenFactorLeavesTheCarrierThreefoldTime) {
  const std::vector<CostModel> links{cost_model_of(published_link("pcie3")), cost_model_of(published_link("nvlink4"))};
  const std::vector<std::int64_t> sizes{4, 1'000'000};
  std::vector<double> factors(2);
  run_local_world(2, [&](ProcessGroup& local) {
    // Carried by a link that is slow itself: 20 ms for each start and for each million bytes.
    EmulatedGroup carrier(local, slow_link(), 20.0);
    factors[static_cast<std::size_t>(carrier.rank())] = choose_slow_motion(carrier, sizes, links);
  });
  EXPECT_EQ(factors[0], factors[1]);
  // The worst are 4 bytes: two starts of 20 ms, with the exchange of times, against 14 us of nvlink4.
  EXPECT_GE(factors[0], 3 * 40e3 / 14.1);
  EXPECT_LE(factors[0], 1.5 * 3 * 40e3 / 14);
}

TEST(EmulatedGroup, ChosenFactorFitsBucketsThatWereCarriedBehindBackward) {
  // Carried in 2 and 5 ms: the second waited for the first. The fast link takes 1 + 1 us and 1 + 4 us.
  const std::vector<CostModel> links{{.link = "slow", .ranks = 2, .regimes = {{1, 1, 10, 1e-2}}},
                                     {.link = "fast", .ranks = 2, .regimes = {{1, 1, 1, 1e-3}}}};
  const std::vector<BucketTiming> carried{{0, 1000, 4, 5, 7}, {1, 4000, 6, 6, 12}};
  EXPECT_DOUBLE_EQ(choose_slow_motion(carried, links, 2), 3000);
}

TEST(EmulatedGroup, RefusesFactorsThatAreNone) {
  run_local_world(1, [](ProcessGroup& carrier) {
    EXPECT_THROW(EmulatedGroup(carrier, slow_link(), 0), std::invalid_argument);
    EXPECT_THROW(choose_slow_motion(std::vector<BucketTiming>{{}}, {}, 2), std::invalid_argument);
  });
}

}  // namespace
}  // namespace lockstep
