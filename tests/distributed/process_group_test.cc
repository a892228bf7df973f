// What every backend promises, run on each. A new backend is one more line in `Backends`.
#include "framework/distributed/process_group.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <csignal>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "framework/core/error.h"
#include "framework/distributed/gloo_group.h"
#include "framework/distributed/local_group.h"
#include "framework/interconnect/emulated_group.h"
#include "framework/interconnect/published_links.h"
#include "tests/distributed/conformance.h"
#include "tests/support/seed.h"
#include "tests/support/worlds.h"

namespace lockstep {
namespace {

struct LocalBackend {
  static constexpr const char* kName = "local";
  static void run(int size, const RankBody& body, const GroupOptions& options = {}) {
    run_local_world(size, body, options);
  }
};

struct EmulatedBackend {
  static constexpr const char* kName = "emulated";
  static void run(int size, const RankBody& body, const GroupOptions& options = {}) {
    run_local_world(
        size,
        [&](ProcessGroup& carrier) {
          EmulatedGroup group(carrier, cost_model_of(published_link("pcie5")), 5.0);
          body(group);
        },
        options);
  }
};

#ifdef LOCKSTEP_HAS_GLOO
struct GlooBackend {
  static constexpr const char* kName = "gloo";
  static void run(int size, const RankBody& body, const GroupOptions& options = {}) {
    run_gloo_world(size, body, options);
  }
};
using Backends = ::testing::Types<LocalBackend, EmulatedBackend, GlooBackend>;
#else
using Backends = ::testing::Types<LocalBackend, EmulatedBackend>;
#endif

struct BackendNames {
  template <class Backend>
  static std::string GetName(int) {
    return Backend::kName;
  }
};

template <class Backend>
class ProcessGroupTest : public ::testing::Test {
 protected:
  // On 1 to 4 ranks.
  static void runs(const RankBody& check) {
    for (int size = 1; size <= 4; ++size) Backend::run(size, check);
  }
};

TYPED_TEST_SUITE(ProcessGroupTest, Backends, BackendNames);

TYPED_TEST(ProcessGroupTest, AllReduceF32) { TestFixture::runs(check_all_reduce<float>); }
TYPED_TEST(ProcessGroupTest, AllReduceF64) { TestFixture::runs(check_all_reduce<double>); }
TYPED_TEST(ProcessGroupTest, AllReduceI32) { TestFixture::runs(check_all_reduce<std::int32_t>); }
TYPED_TEST(ProcessGroupTest, AllReduceU8) { TestFixture::runs(check_all_reduce<std::uint8_t>); }
TYPED_TEST(ProcessGroupTest, AllReduceBf16) { TestFixture::runs(check_all_reduce<bfloat16>); }
TYPED_TEST(ProcessGroupTest, AllReduceMax) { TestFixture::runs(check_all_reduce<float, ReduceOp::max>); }
TYPED_TEST(ProcessGroupTest, AllReduceMin) { TestFixture::runs(check_all_reduce<double, ReduceOp::min>); }

TYPED_TEST(ProcessGroupTest, AllReduceOfManyMebibytes) {
  for (const int size : {2, 3}) TypeParam::run(size, check_large_all_reduce);
}

TYPED_TEST(ProcessGroupTest, AllReduceOutOfPlaceKeepsItsInput) { TestFixture::runs(check_all_reduce_out_of_place); }
TYPED_TEST(ProcessGroupTest, BroadcastFromEveryRoot) { TestFixture::runs(check_broadcast); }
TYPED_TEST(ProcessGroupTest, AllGatherPutsRanksInOrder) { TestFixture::runs(check_all_gather); }
TYPED_TEST(ProcessGroupTest, ReduceScatterGivesEachItsPart) { TestFixture::runs(check_reduce_scatter); }
TYPED_TEST(ProcessGroupTest, SendAndReceiveKeepTheirOrder) { TypeParam::run(3, check_send_order); }
TYPED_TEST(ProcessGroupTest, RanksCanExchangeLargeMessages) { TypeParam::run(2, check_exchange); }
TYPED_TEST(ProcessGroupTest, ManyOutstandingCollectivesRunInOrder) { TypeParam::run(3, check_many_outstanding); }
TYPED_TEST(ProcessGroupTest, RingAllReduceIsAnAllReduce) { TestFixture::runs(check_ring_all_reduce); }
TYPED_TEST(ProcessGroupTest, WrongArgumentsAreRefusedAtTheCall) { TypeParam::run(2, check_wrong_arguments); }

// A rank that has sent all may leave before the others have read it.
TYPED_TEST(ProcessGroupTest, WhoLeavesFirstTakesNothingAway) {
  for (int round = 0; round < 10; ++round) {
    TypeParam::run(3,
                   [&](ProcessGroup& group) {
                     std::vector<float> values(35'000, group.rank() == 0 ? 7.0F : 0.0F);
                     group.broadcast(view_of(values), 0).wait();
                     EXPECT_EQ(std::ranges::count(values, 7.0F), std::ssize(values)) << "rank " << group.rank();
                   },
                   {.timeout = std::chrono::seconds(10)});
  }
}

TYPED_TEST(ProcessGroupTest, CallsReturnBeforeTheOthersCome) {
  std::atomic<bool> issued{false};
  TypeParam::run(2, [&](ProcessGroup& group) {
    std::vector<float> value{1};
    if (group.rank() == 1) {
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!issued && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    }
    const Work work = group.all_reduce(view_of(value));
    if (group.rank() == 0) {
      EXPECT_FALSE(work.done());
      EXPECT_EQ(work.finished_at(), std::nullopt);
      issued = true;
    }
    work.wait();
    EXPECT_EQ(value[0], 2);
  });
}

TYPED_TEST(ProcessGroupTest, BarrierHoldsUntilAllHaveCome) {
  std::atomic<int> arrived{0};
  TypeParam::run(4, [&](ProcessGroup& group) {
    for (int round = 1; round <= 5; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(group.rank()));
      ++arrived;
      group.barrier().wait();
      EXPECT_GE(arrived.load(), 4 * round);
      group.barrier().wait();
    }
  });
}

// Runs `body` on each rank, which is to throw Error; returns the texts.
template <class Backend>
std::vector<std::string> errors_of(int size, const RankBody& body, const GroupOptions& options) {
  std::vector<std::string> texts(static_cast<std::size_t>(size));
  Backend::run(
      size,
      [&](ProcessGroup& group) {
        try {
          body(group);
        } catch (const Error& error) {
          texts[static_cast<std::size_t>(group.rank())] = error.what();
        }
      },
      options);
  return texts;
}

TYPED_TEST(ProcessGroupTest, RanksThatDisagreeAreNamed) {
  const auto texts = errors_of<TypeParam>(2,
                                          [](ProcessGroup& group) {
                                            std::vector<float> values(group.rank() == 0 ? 5000 : 6000);
                                            group.all_reduce(view_of(values), ReduceOp::sum, "bucket 3").wait();
                                          },
                                          {.timeout = std::chrono::milliseconds(300)});
  EXPECT_NE(texts[0].find("(6000)"), std::string::npos) << texts[0];
  EXPECT_NE(texts[1].find("(5000)"), std::string::npos) << texts[1];
  for (const std::string& text : texts) EXPECT_NE(text.find("bucket 3"), std::string::npos) << text;
}

TYPED_TEST(ProcessGroupTest, DeadlineNamesWhoIsMissing) {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<bool> over{false};
  const auto texts =
      errors_of<TypeParam>(3,
                           [&](ProcessGroup& group) {
                             std::vector<float> values(5000);
                             group.all_reduce(view_of(values)).wait();
                             if (group.rank() == 2) {
                               while (!over)
                                 std::this_thread::sleep_for(std::chrono::milliseconds(5));  // busy with something else
                               return;
                             }
                             try {
                               group.all_reduce(view_of(values), ReduceOp::sum, "loss").wait();
                             } catch (const Error&) {
                               EXPECT_THROW(group.barrier().wait(), Error) << "a group does not recover";
                               over = true;
                               throw;
                             }
                           },
                           {.timeout = std::chrono::milliseconds(300)});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  for (const int rank : {0, 1}) {
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    EXPECT_NE(text.find("loss"), std::string::npos) << text;
    EXPECT_TRUE(text.find("rank(s) 2") != std::string::npos || text.find("rank 2 was in none") != std::string::npos)
        << text;
  }
}

TYPED_TEST(ProcessGroupTest, RankThatThrowsReleasesTheOthers) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> texts(3);
  try {
    TypeParam::run(3, [&](ProcessGroup& group) {
      std::vector<float> values(5000);
      group.all_reduce(view_of(values)).wait();
      if (group.rank() == 1) throw std::runtime_error("no more data");
      try {
        group.all_reduce(view_of(values)).wait();
      } catch (const Error& error) {
        texts[static_cast<std::size_t>(group.rank())] = error.what();
      }
    });
    FAIL() << "the exception of rank 1 was lost";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "no more data");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << "well before the deadline of 30 s";
  for (const int rank : {0, 2}) {
    EXPECT_NE(texts[static_cast<std::size_t>(rank)].find("rank 1"), std::string::npos)
        << texts[static_cast<std::size_t>(rank)];
  }
}

TYPED_TEST(ProcessGroupTest, AbortEndsWhatWaits) {
  const auto start = std::chrono::steady_clock::now();
  const auto texts = errors_of<TypeParam>(2,
                                          [&](ProcessGroup& group) {
                                            std::vector<float> values(5000);
                                            group.all_reduce(view_of(values)).wait();
                                            if (group.rank() == 1) return group.barrier().wait();
                                            const Work work = group.recv(view_of(values), 1);
                                            std::thread watchdog([&] {
                                              std::this_thread::sleep_for(std::chrono::milliseconds(50));
                                              group.abort("the loss is not a number");
                                            });
                                            try {
                                              work.wait();
                                            } catch (const Error&) {
                                              watchdog.join();
                                              throw;
                                            }
                                            watchdog.join();
                                          },
                                          {});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_NE(texts[0].find("the loss is not a number"), std::string::npos) << texts[0];
  EXPECT_FALSE(texts[1].empty()) << "rank 1 waits for a barrier that rank 0 never reaches";
}

TYPED_TEST(ProcessGroupTest, AbortOfAnIdleRankReleasesTheOthers) {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<bool> over{false};
  const auto texts =
      errors_of<TypeParam>(2,
                           [&](ProcessGroup& group) {
                             group.barrier().wait();
                             if (group.rank() == 0) {
                               group.abort("no space left for the checkpoint");
                               while (!over && std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
                                 std::this_thread::sleep_for(std::chrono::milliseconds(2));
                               }
                             }
                             try {
                               group.barrier().wait();
                             } catch (const Error&) {
                               over = true;
                               throw;
                             }
                           },
                           {});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_NE(texts[0].find("no space left for the checkpoint"), std::string::npos) << texts[0];
  EXPECT_FALSE(texts[1].empty());
}

TYPED_TEST(ProcessGroupTest, DestroyedWithWorkInFlightEndsAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  TypeParam::run(2, [&](ProcessGroup& group) {
    std::vector<float> values(5000);
    if (group.rank() == 0) static_cast<void>(group.recv(view_of(values), 1));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(MakeProcessGroup, ChoosesByNameAndSize) {
  const auto group = make_process_group("auto", Environment{}, nullptr);
  EXPECT_EQ(group->backend(), "local");
  EXPECT_EQ(group->size(), 1);
  EXPECT_THROW(make_process_group("mpi", Environment{}, nullptr), std::invalid_argument);
  EXPECT_THROW(make_process_group("local", Environment{.world_size = 2, .local_world_size = 2}, nullptr),
               std::invalid_argument);
  EXPECT_THROW(make_process_group("gloo", Environment{.world_size = 2, .local_world_size = 2}, nullptr),
               std::invalid_argument);
}

TEST(LocalGroup, SumsInRankOrderWhateverTheSize) {
  // 1 + 1e8 - 1e8 in f32 depends on the order.
  run_local_world(3, [](ProcessGroup& group) {
    const float mine = group.rank() == 0 ? 1.0f : group.rank() == 1 ? 1e8f : -1e8f;
    for (const std::size_t count : kSizes) {
      std::vector<float> values(count, mine);
      group.all_reduce(view_of(values)).wait();
      for (const float value : values) ASSERT_EQ(value, 0.0f);
    }
  });
}

#ifdef LOCKSTEP_HAS_GLOO

TEST(GlooGroup, HasTheBitsOfALocalGroup) {
  for (const std::size_t count : kSizes) {
    std::string local, gloo;
    const auto reduce_into = [count](std::string& bits) {
      return [&bits, count](ProcessGroup& group) {
        auto values = values_of<float>(group.rank(), count);
        group.all_reduce(view_of(values)).wait();
        if (group.rank() == 0) bits = bits_of(values);
      };
    };
    run_local_world(4, reduce_into(local));
    run_gloo_world(4, reduce_into(gloo));
    EXPECT_EQ(local, gloo) << count << " elements";
  }
}

void reduce_in_process(const Environment& environment, const std::function<void(ProcessGroup&)>& then) {
  auto store = std::make_shared<Store>(store_options(environment));
  const auto group = make_process_group("auto", environment, store);
  auto values = values_of<float>(group->rank(), 70001);
  group->all_reduce(view_of(values)).wait();
  expect_reduced(values, ReduceOp::sum, group->size(), values.size());
  then(*group);
}

TEST(GlooGroup, WorksBetweenProcesses) {
  EXPECT_EQ(run_process_world(
                3, [](const Environment& e) { reduce_in_process(e, [](ProcessGroup& g) { g.barrier().wait(); }); }),
            (std::vector<int>{0, 0, 0}));
}

TEST(GlooGroup, SurvivorsOfAKilledProcessEndAtOnceAndNameIt) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<int> statuses = run_process_world(3, [](const Environment& environment) {
    try {
      reduce_in_process(environment, [](ProcessGroup& group) {
        if (group.rank() == 1) ::raise(SIGKILL);
        std::vector<float> values(1 << 20);
        group.all_reduce(view_of(values)).wait();
      });
    } catch (const Error& error) {
      const std::string text = error.what();
      if (text.find("rank 1 is gone") == std::string::npos) throw;  // which shows the text
      ::_exit(42);
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(statuses, (std::vector<int>{42 << 8, SIGKILL, 42 << 8}));
}

#endif

// Engines add in an order of their own.
TEST(Conformance, TakesASumInAnyOrder) {
  constexpr std::size_t kCount = 1'000'000;
  const auto [a, b, c] =
      std::tuple(values_of<double>(0, kCount), values_of<double>(1, kCount), values_of<double>(2, kCount));
  std::vector<double> backwards(kCount);
  for (std::size_t i = 0; i < kCount; ++i) backwards[i] = (c[i] + b[i]) + a[i];
  expect_reduced(backwards, ReduceOp::sum, 3, kCount);
}

}  // namespace
}  // namespace lockstep
