#include "framework/distributed/store.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "framework/core/error.h"
#include "framework/distributed/socket.h"
#include "tests/support/text.h"
#include "tests/support/thrown_by.h"
#include "tests/support/worlds.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::contains;
using Clock = std::chrono::steady_clock;

TEST(Store, GetWaitsForSet) {
  run_store_world(3, [](Store& store) {
    if (store.rank() == 1) {
      std::this_thread::sleep_for(30ms);
      store.set("colour", std::string("gr\0en", 5));
    }
    EXPECT_EQ(store.get("colour"), std::string("gr\0en", 5));
    EXPECT_EQ(store.try_get("weight"), std::nullopt);
    EXPECT_EQ(store.try_get("colour")->size(), 5u);
  });
}

TEST(Store, LaterValuesReplaceEarlierOnes) {
  Store store({});
  store.set("a", "1");
  store.set("a", "");
  EXPECT_EQ(store.get("a"), "");
}

TEST(Store, CarriesLargeValues) {
  const std::string large(3 << 20, 'x');
  run_store_world(2, [&](Store& store) {
    if (store.rank() == 1) store.set("large", large);
    EXPECT_EQ(store.get("large"), large);
  });
}

TEST(Store, AddGivesEveryCallItsOwnSum) {
  std::set<std::int64_t> sums;
  std::mutex mutex;
  run_store_world(4, [&](Store& store) {
    for (int i = 0; i < 25; ++i) {
      const std::int64_t sum = store.add("tickets", 1);
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(sums.insert(sum).second) << sum << " was given twice";
    }
  });
  EXPECT_EQ(sums.size(), 100u);
  EXPECT_EQ(*sums.rbegin(), 100);
}

TEST(Store, BarrierHoldsUntilAllHaveCome) {
  std::atomic<int> arrived{0};
  run_store_world(4, [&](Store& store) {
    for (int round = 1; round <= 3; ++round) {
      ++arrived;
      store.barrier("round");
      EXPECT_GE(arrived.load(), 4 * round);
      store.barrier("round");
    }
  });
}

TEST(Store, GatherKeepsRankOrder) {
  run_store_world(3, [](Store& store) {
    for (const std::string round : {"a", "b"}) {
      const auto values = store.gather("names", round + std::to_string(store.rank()));
      EXPECT_EQ(values, (std::vector<std::string>{round + "0", round + "1", round + "2"}));
    }
  });
}

TEST(Store, ThreadsOfOneRankDoNotBlockEachOther) {
  Store store({});
  std::thread waiting([&] { EXPECT_EQ(store.get("late", 10s), "here"); });
  std::this_thread::sleep_for(20ms);
  store.set("late", "here");
  waiting.join();
}

TEST(Store, DeadlineNamesTheKeyAndLeavesTheStoreUsable) {
  run_store_world(2, [](Store& store) {
    const auto start = Clock::now();
    const std::string text = testing::thrown_by<Error>([&] { store.get("never", 100ms); });
    EXPECT_TRUE(contains(text, "never") && contains(text, "100 ms")) << text;
    EXPECT_GE(Clock::now() - start, 100ms);
    EXPECT_LT(Clock::now() - start, 3s);
    EXPECT_EQ(store.failure(), std::nullopt);
    store.barrier("after");
  });
}

TEST(Store, BarrierDeadlineNamesTheMissingRank) {
  run_store_world(2, [](Store& store) {
    if (store.rank() == 0) {
      const std::string text = testing::thrown_by<Error>([&] { store.barrier("save", 100ms); });
      EXPECT_TRUE(contains(text, "save") && contains(text, "rank 1")) << text;
    }
    store.barrier("end");
  });
}

TEST(Store, AbortReachesEveryWaitWithItsReason) {
  run_store_world(3, [](Store& store) {
    if (store.rank() == 1) {
      std::this_thread::sleep_for(30ms);
      store.abort("out of memory");
      return;
    }
    const auto start = Clock::now();
    const std::string text = testing::thrown_by<Error>([&] { store.get("never", 20s); });
    EXPECT_TRUE(contains(text, "rank 1") && contains(text, "out of memory")) << text;
    EXPECT_LT(Clock::now() - start, 5s);
    EXPECT_TRUE(contains(store.failure().value_or(""), "out of memory"));
    EXPECT_TRUE(contains(testing::thrown_by<Error>([&] { store.get("later", 20s); }), "out of memory"))
        << "later waits fail too";
    store.set("last words", "may still be left");
    EXPECT_EQ(store.get("last words"), "may still be left");
  });
}

TEST(Store, RankThatThrowsIsNamedAtOnce) {
  EXPECT_THROW(run_store_world(3,
                               [](Store& store) {
                                 store.barrier("start");
                                 if (store.rank() == 2) throw std::domain_error("a fault of rank 2");
                                 const auto start = Clock::now();
                                 const std::string text = testing::thrown_by<Error>([&] { store.get("never", 20s); });
                                 EXPECT_TRUE(contains(text, "rank 2 is gone")) << text;
                                 EXPECT_LT(Clock::now() - start, 5s);
                               }),
               std::domain_error);
}

TEST(Store, RankThatSaidGoodbyeIsNotMissed) {
  run_store_world(3, [](Store& store) {
    store.barrier("start");
    if (store.rank() == 2) return;
    std::this_thread::sleep_for(50ms);
    store.set("rank " + std::to_string(store.rank()), "");
    store.get(store.rank() == 0 ? "rank 1" : "rank 0");
    EXPECT_EQ(store.failure(), std::nullopt);
  });
}

TEST(Store, KilledProcessIsNamedByTheOthers) {
  const std::vector<int> statuses = run_process_world(3, [](const Environment& environment) {
    Store store(store_options(environment));
    store.barrier("start");
    if (store.rank() == 1) ::raise(SIGKILL);
    const std::string text = testing::thrown_by<Error>([&] { store.get("never", 20s); });
    if (!contains(text, "rank 1 is gone")) throw Error("rank 1 is not named: " + text);
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, SIGKILL, 0}));
}

TEST(Store, LossOfRankZeroIsOneClearLine) {
  const auto start = Clock::now();
  const std::vector<int> statuses = run_process_world(3, [](const Environment& environment) {
    Store store(store_options(environment));
    if (store.rank() == 0) {
      for (const char* other : {"rank 1", "rank 2"}) store.get(other);
      ::raise(SIGKILL);
    }
    const std::string text = testing::thrown_by<Error>([&] {
      store.set("rank " + std::to_string(store.rank()), "");
      store.get("never", 20s);
    });
    const std::string again = testing::thrown_by<Error>([&] { store.set("more", ""); });
    ::_exit(contains(text, "has lost the store of rank 0") && again == text && !contains(text, "\n") ? 42 : 1);
  });
  EXPECT_EQ(statuses, (std::vector<int>{SIGKILL, 42 << 8, 42 << 8}));
  EXPECT_LT(Clock::now() - start, 5s);
}

TEST(Store, RankZeroStaysUntilTheOthersAreDone) {
  const std::vector<int> statuses = run_process_world(2, [](const Environment& environment) {
    Store store(store_options(environment));
    if (store.rank() == 0) return;
    std::this_thread::sleep_for(200ms);
    store.set("late", "but served");
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
}

TEST(Store, TakenPortIsTheUsersToChange) {
  const Socket taken = listen_on(0, true);
  try {
    Store store({.port = port_of(taken), .size = 2});
    FAIL() << "two servers on one port";
  } catch (const std::invalid_argument& error) {
    const std::string text = error.what();
    EXPECT_TRUE(contains(text, std::to_string(port_of(taken))) && contains(text, "LOCKSTEP_PORT")) << text;
    EXPECT_FALSE(contains(text, "\n"));
  }
}

TEST(Store, NobodyThereIsAnErrorAtTheDeadline) {
  int port = 0;
  {
    const Socket closed = listen_on(0, true);
    port = port_of(closed);
  }
  const auto start = Clock::now();
  const std::string text =
      testing::thrown_by<Error>([&] { Store store({.port = port, .rank = 1, .size = 2, .connect_timeout = 200ms}); });
  EXPECT_TRUE(contains(text, std::to_string(port))) << text;
  EXPECT_LT(Clock::now() - start, 3s);
}

TEST(Store, LateServerIsWaitedFor) {
  int port = 0;
  {
    const Socket reserved = listen_on(0, true);
    port = port_of(reserved);
  }
  std::thread client([port] {
    Store store({.port = port, .rank = 1, .size = 2, .connect_timeout = 10s});
    store.set("here", "");
  });
  std::this_thread::sleep_for(100ms);
  Store store({.port = port, .rank = 0, .size = 2});
  store.get("here");
  client.join();
}

TEST(Store, SilentListenerDoesNotHoldAClientForEver) {
  const Socket silent = listen_on(0, true);
  const auto start = Clock::now();
  EXPECT_NE(testing::thrown_by<Error>(
                [&] { Store store({.port = port_of(silent), .rank = 1, .size = 2, .connect_timeout = 200ms}); }),
            "");
  EXPECT_LT(Clock::now() - start, 3s);
}

TEST(Store, SecondJobOnTheSamePortIsRefused) {
  Store first({.size = 2});
  Store member({.port = first.port(), .rank = 1, .size = 2});
  for (const StoreOptions& stranger : {StoreOptions{.port = first.port(), .rank = 1, .size = 2},
                                       StoreOptions{.port = first.port(), .rank = 3, .size = 4}}) {
    try {
      Store store(stranger);
      FAIL() << "rank " << stranger.rank << " of another job was let in";
    } catch (const std::invalid_argument& error) {
      EXPECT_TRUE(contains(error.what(), "LOCKSTEP_PORT")) << error.what();
    }
  }
  EXPECT_EQ(first.failure(), std::nullopt) << "the first job is not disturbed";
}

TEST(Store, NoiseOnThePortDisturbsNobody) {
  Store store({});
  for (const std::string noise : {"GET / HTTP/1.1\r\n\r\n", "\xff\xff\xff\xff\xff\xff\xff\xff", ""}) {
    const Socket socket = connect_to("127.0.0.1", store.port(), Clock::now() + 2s);
    send_all(socket, std::as_bytes(std::span(noise)), Clock::now() + 2s);
  }
  store.set("a", "1");
  EXPECT_EQ(store.get("a"), "1");
  EXPECT_EQ(store.failure(), std::nullopt);
}

TEST(Store, OneHostListensOnLoopbackOnly) {
  const auto address_of = [](const Socket& socket) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    EXPECT_EQ(::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    return address;
  };
  const sockaddr_storage loopback = address_of(listen_on(0, true));
  ASSERT_EQ(loopback.ss_family, AF_INET);
  EXPECT_EQ(ntohl(reinterpret_cast<const sockaddr_in&>(loopback).sin_addr.s_addr), INADDR_LOOPBACK);
  // On several hosts the same port is served on all addresses, to IPv4 clients too.
  const Socket everywhere = listen_on(0, false);
  EXPECT_GE(connect_to("127.0.0.1", port_of(everywhere), Clock::now() + 2s).fd(), 0);
}

}  // namespace
}  // namespace lockstep
