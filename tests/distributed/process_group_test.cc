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
#include <vector>

#include "framework/core/error.h"
#include "framework/distributed/gloo_group.h"
#include "framework/distributed/local_group.h"
#include "framework/distributed/ring_all_reduce.h"
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

#ifdef LOCKSTEP_HAS_GLOO
struct GlooBackend {
  static constexpr const char* kName = "gloo";
  static void run(int size, const RankBody& body, const GroupOptions& options = {}) {
    run_gloo_world(size, body, options);
  }
};
using Backends = ::testing::Types<LocalBackend, GlooBackend>;
#else
using Backends = ::testing::Types<LocalBackend>;
#endif

struct BackendNames {
  template <class Backend>
  static std::string GetName(int) {
    return Backend::kName;
  }
};

template <class T>
View view_of(std::vector<T>& values) {
  return {values.data(), dtype_of<T>(), {static_cast<std::int64_t>(values.size())}};
}

// Values of rank `rank` that any other rank can compute too.
template <class T>
std::vector<T> values_of(int rank, std::size_t count, std::uint64_t salt = 0) {
  std::mt19937_64 source(testing::test_seed() * 1000 + salt * 100 + static_cast<std::uint64_t>(rank));
  std::vector<T> values(count);
  for (T& value : values) {
    if constexpr (std::is_same_v<T, bfloat16>) {
      const float real = std::normal_distribution<float>(0, 3)(source);
      value = {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(real) >> 16)};
    } else if constexpr (std::is_floating_point_v<T>) {
      value = std::normal_distribution<T>(0, 3)(source);
    } else {
      value = static_cast<T>(std::uniform_int_distribution<int>(0, 50)(source));
    }
  }
  return values;
}

double real(bfloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }
template <class T>
double real(T value) {
  return static_cast<double>(value);
}

// Relative to the sum of absolute values: what one rounding a rank may change.
template <class T>
constexpr double kRounding = 0;
template <>
constexpr double kRounding<float> = 5e-7;
template <>
constexpr double kRounding<double> = 1e-15;
template <>
constexpr double kRounding<bfloat16> = 4e-3;

double combine(ReduceOp op, double a, double b) {
  return op == ReduceOp::sum ? a + b : op == ReduceOp::max ? std::max(a, b) : std::min(a, b);
}

// The reduction of all ranks' values in double precision against `got`.
template <class T>
void expect_reduced(const std::vector<T>& got, ReduceOp op, int size, std::size_t count, std::size_t begin = 0) {
  std::vector<std::vector<T>> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(values_of<T>(rank, count));
  for (std::size_t i = 0; i < got.size(); ++i) {
    double expected = real(all[0][begin + i]);
    double magnitude = std::abs(expected);
    for (int rank = 1; rank < size; ++rank) {
      expected = combine(op, expected, real(all[static_cast<std::size_t>(rank)][begin + i]));
      magnitude += std::abs(real(all[static_cast<std::size_t>(rank)][begin + i]));
    }
    const double allowed = op == ReduceOp::sum ? kRounding<T> * magnitude : 0;
    ASSERT_NEAR(real(got[i]), expected, allowed) << "element " << i << " of " << got.size() << ", " << size << " ranks";
  }
}

template <class T>
std::string bits_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Sizes around the edges of parts, blocks and the small-message path.
const std::vector<std::size_t> kSizes{0, 1, 2, 3, 17, 1000, 4099, 70001};

template <class Backend>
class ProcessGroupTest : public ::testing::Test {
 protected:
  template <class T>
  static void all_reduces(ReduceOp op) {
    for (int size = 1; size <= 4; ++size) {
      std::vector<std::vector<std::string>> bits(kSizes.size(),
                                                 std::vector<std::string>(static_cast<std::size_t>(size)));
      Backend::run(size, [&](ProcessGroup& group) {
        for (std::size_t i = 0; i < kSizes.size(); ++i) {
          std::vector<T> values = values_of<T>(group.rank(), kSizes[i]);
          group.all_reduce(view_of(values), op).wait();
          expect_reduced(values, op, size, kSizes[i]);
          bits[i][static_cast<std::size_t>(group.rank())] = bits_of(values);
        }
      });
      for (const auto& of_ranks : bits) {
        for (const std::string& of_rank : of_ranks) ASSERT_EQ(of_rank, of_ranks[0]) << "ranks differ in bits";
      }
    }
  }
};

TYPED_TEST_SUITE(ProcessGroupTest, Backends, BackendNames);

TYPED_TEST(ProcessGroupTest, AllReduceF32) { TestFixture::template all_reduces<float>(ReduceOp::sum); }
TYPED_TEST(ProcessGroupTest, AllReduceF64) { TestFixture::template all_reduces<double>(ReduceOp::sum); }
TYPED_TEST(ProcessGroupTest, AllReduceI32) { TestFixture::template all_reduces<std::int32_t>(ReduceOp::sum); }
TYPED_TEST(ProcessGroupTest, AllReduceU8) { TestFixture::template all_reduces<std::uint8_t>(ReduceOp::sum); }
TYPED_TEST(ProcessGroupTest, AllReduceBf16) { TestFixture::template all_reduces<bfloat16>(ReduceOp::sum); }
TYPED_TEST(ProcessGroupTest, AllReduceMax) { TestFixture::template all_reduces<float>(ReduceOp::max); }
TYPED_TEST(ProcessGroupTest, AllReduceMin) { TestFixture::template all_reduces<double>(ReduceOp::min); }

TYPED_TEST(ProcessGroupTest, AllReduceOfManyMebibytes) {
  for (const int size : {2, 3}) {
    TypeParam::run(size, [&](ProcessGroup& group) {
      std::vector<float> values = values_of<float>(group.rank(), 1'300'001);
      group.all_reduce(view_of(values)).wait();
      expect_reduced(values, ReduceOp::sum, size, values.size());
    });
  }
}

TYPED_TEST(ProcessGroupTest, BroadcastFromEveryRoot) {
  for (int size = 1; size <= 4; ++size) {
    TypeParam::run(size, [&](ProcessGroup& group) {
      for (int root = 0; root < size; ++root) {
        for (const std::size_t count : kSizes) {
          auto values = values_of<float>(group.rank(), count, 1);
          group.broadcast(view_of(values), root).wait();
          ASSERT_EQ(bits_of(values), bits_of(values_of<float>(root, count, 1)));
        }
      }
    });
  }
}

TYPED_TEST(ProcessGroupTest, AllGatherPutsRanksInOrder) {
  for (int size = 1; size <= 4; ++size) {
    TypeParam::run(size, [&](ProcessGroup& group) {
      for (const std::size_t count : kSizes) {
        auto mine = values_of<std::int32_t>(group.rank(), count, 2);
        std::vector<std::int32_t> expected;
        for (int rank = 0; rank < size; ++rank) {
          for (const std::int32_t value : values_of<std::int32_t>(rank, count, 2)) expected.push_back(value);
        }
        std::vector<std::int32_t> all(count * static_cast<std::size_t>(size), -1);
        group.all_gather(view_of(mine), view_of(all)).wait();
        ASSERT_EQ(all, expected);
        // In place: this rank's part of the result is its input.
        std::vector<std::int32_t> in_place(all.size(), -1);
        auto* part = in_place.data() + count * static_cast<std::size_t>(group.rank());
        std::copy(mine.begin(), mine.end(), part);
        group.all_gather(View{part, DType::i32, {static_cast<std::int64_t>(count)}}, view_of(in_place)).wait();
        ASSERT_EQ(in_place, expected);
      }
    });
  }
}

TYPED_TEST(ProcessGroupTest, ReduceScatterGivesEachItsPart) {
  for (int size = 1; size <= 4; ++size) {
    TypeParam::run(size, [&](ProcessGroup& group) {
      for (const std::size_t count : kSizes) {
        const std::size_t whole = count * static_cast<std::size_t>(size);
        auto in = values_of<float>(group.rank(), whole);
        const std::vector<float> before = in;
        std::vector<float> out(count, std::nanf(""));
        group.reduce_scatter(view_of(in), view_of(out)).wait();
        expect_reduced(out, ReduceOp::sum, size, whole, count * static_cast<std::size_t>(group.rank()));
        ASSERT_EQ(bits_of(in), bits_of(before)) << "the input was changed";
      }
    });
  }
}

TYPED_TEST(ProcessGroupTest, SendAndReceiveKeepTheirOrder) {
  TypeParam::run(3, [&](ProcessGroup& group) {
    // 0 -> 1 -> 2, twice as many messages as one could mix up.
    for (std::uint64_t i = 0; i < 6; ++i) {
      const std::size_t count = 1 + 997 * i;
      auto values = values_of<double>(0, count, 10 + i);
      std::vector<double> received(count);
      if (group.rank() > 0) group.recv(view_of(received), group.rank() - 1).wait();
      if (group.rank() > 0) {
        ASSERT_EQ(received, values);
      }
      if (group.rank() < 2) group.send(view_of(values), group.rank() + 1).wait();
    }
  });
}

TYPED_TEST(ProcessGroupTest, RanksCanExchangeLargeMessages) {
  TypeParam::run(2, [&](ProcessGroup& group) {
    const std::size_t count = 1 << 20;
    auto mine = values_of<float>(group.rank(), count, 3);
    std::vector<float> theirs(count);
    const int other = 1 - group.rank();
    group.send_recv(view_of(mine), other, view_of(theirs), other).wait();
    EXPECT_EQ(bits_of(theirs), bits_of(values_of<float>(other, count, 3)));
  });
}

TYPED_TEST(ProcessGroupTest, ManyOutstandingCollectivesRunInOrder) {
  TypeParam::run(3, [&](ProcessGroup& group) {
    constexpr int kCount = 30;  // 3^30 is exact in f64
    std::vector<std::vector<float>> values;
    for (int i = 0; i < kCount; ++i)
      values.push_back(values_of<float>(group.rank(), 37 * static_cast<std::size_t>(i) + 1));
    std::vector<double> again{1.0};
    std::vector<Work> works;
    for (auto& tensor : values) {
      works.push_back(group.all_reduce(view_of(tensor)));
      // The same memory again and again: right only if each starts when the one before has ended.
      works.push_back(group.all_reduce(view_of(again)));
      if (works.size() % 20 == 0) works.push_back(group.barrier());
    }
    for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
    for (const Work& work : works) EXPECT_TRUE(work.done());
    for (std::size_t i = 1; i < works.size(); ++i) EXPECT_LE(*works[i - 1].finished_at(), *works[i].finished_at());
    for (const auto& tensor : values) expect_reduced(tensor, ReduceOp::sum, 3, tensor.size());
    EXPECT_EQ(again[0], std::pow(3.0, kCount));
  });
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

TYPED_TEST(ProcessGroupTest, RingAllReduceIsAnAllReduce) {
  for (int size = 1; size <= 4; ++size) {
    std::vector<std::string> bits(static_cast<std::size_t>(size));
    TypeParam::run(size, [&](ProcessGroup& group) {
      for (const std::size_t count : kSizes) {
        auto values = values_of<float>(group.rank(), count);
        ring_all_reduce(group, view_of(values));
        expect_reduced(values, ReduceOp::sum, size, count);
        bits[static_cast<std::size_t>(group.rank())] += bits_of(values);
      }
    });
    for (const std::string& of_rank : bits) EXPECT_EQ(of_rank, bits[0]);
  }
}

TYPED_TEST(ProcessGroupTest, WrongArgumentsAreRefusedAtTheCall) {
  TypeParam::run(2, [&](ProcessGroup& group) {
    std::vector<float> two(2), three(3);
    std::vector<double> other(4);
    EXPECT_THROW(group.broadcast(view_of(two), 2), std::invalid_argument);
    EXPECT_THROW(group.broadcast(view_of(two), -1), std::invalid_argument);
    EXPECT_THROW(group.all_gather(view_of(two), view_of(three)), std::invalid_argument);
    EXPECT_THROW(group.all_gather(view_of(two), view_of(other)), std::invalid_argument);
    EXPECT_THROW(group.reduce_scatter(view_of(three), view_of(two)), std::invalid_argument);
    EXPECT_THROW(group.send(view_of(two), group.rank()), std::invalid_argument);
    EXPECT_THROW(group.recv(view_of(two), 7), std::invalid_argument);
    group.all_reduce(view_of(two)).wait();  // and the group still works
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
  if (::testing::Test::HasFailure()) throw Error("a wrong result");
  then(*group);
}

TEST(GlooGroup, WorksBetweenProcesses) {
  testing::test_seed();  // chosen before the processes part
  EXPECT_EQ(run_process_world(
                3, [](const Environment& e) { reduce_in_process(e, [](ProcessGroup& g) { g.barrier().wait(); }); }),
            (std::vector<int>{0, 0, 0}));
}

TEST(GlooGroup, SurvivorsOfAKilledProcessEndAtOnceAndNameIt) {
  testing::test_seed();
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

}  // namespace
}  // namespace lockstep
