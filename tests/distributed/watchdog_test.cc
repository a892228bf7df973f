#include "framework/distributed/watchdog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "framework/core/error.h"
#include "tests/support/worlds.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct FakeWork final : Watchdog::Item {
  explicit FakeWork(std::string what, bool is_started = true) : text(std::move(what)), has_started(is_started) {}
  bool started() const override { return has_started; }
  bool ended() const override {
    if (broken) throw Error("an illegal address");
    if (answers) answers->wait();
    return has_ended;
  }
  std::string to_string() const override {
    return progress == 0 ? text : text + " after bucket " + std::to_string(progress);
  }

  std::string text;
  std::atomic<int> progress = 0;
  std::atomic<bool> has_started;
  std::atomic<bool> has_ended = false;
  std::atomic<bool> broken = false;
  std::optional<std::shared_future<void>> answers;  // when the device does; empty: at once
};

// A watchdog over an engine that does what the test says.
struct Watched {
  explicit Watched(std::chrono::milliseconds timeout, std::shared_ptr<Store> store = nullptr)
      : watchdog({.name = "group#0",
                  .rank = store ? store->rank() : 0,
                  .size = store ? store->size() : 1,
                  .timeout = timeout,
                  .store = store,
                  .failure = failure,
                  .begin = [begun = begun] { *begun = true; },
                  .engine_failure = [error = engine_error]() -> std::optional<std::string> {
                    if (*error) return "the cable is out";
                    return std::nullopt;
                  },
                  .abort = [aborts = aborts] { ++*aborts; }}) {}

  std::string text() const {
    try {
      failure->check();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
  bool fails_within(std::chrono::milliseconds limit) const {
    for (const auto end = Clock::now() + limit; Clock::now() < end; std::this_thread::sleep_for(1ms)) {
      if (failure->is_set()) return true;
    }
    return false;
  }
  void expect_one_abort() const {
    for (int i = 0; i < 2000 && *aborts == 0; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(*aborts, 1);
  }

  std::shared_ptr<std::atomic<bool>> begun = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<std::atomic<bool>> engine_error = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<std::atomic<int>> aborts = std::make_shared<std::atomic<int>>(0);
  std::shared_ptr<FailureLatch> failure = std::make_shared<FailureLatch>();
  Watchdog watchdog;
};

TEST(FailureLatch, KeepsTheFirst) {
  FailureLatch latch;
  EXPECT_NO_THROW(latch.check());
  EXPECT_TRUE(latch.set("first"));
  EXPECT_FALSE(latch.set("second"));
  EXPECT_TRUE(latch.is_set());
  try {
    latch.check();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
}

TEST(Watchdog, LeavesInPeaceWhatEndsInTime) {
  Watched watched(200ms);
  for (int i = 0; i < 10; ++i) {
    const auto work = std::make_shared<FakeWork>("work " + std::to_string(i));
    watched.watchdog.watch(work);
    std::this_thread::sleep_for(60ms);  // longer than the timeout in all
    work->has_ended = true;
  }
  watched.watchdog.drain();
  EXPECT_TRUE(*watched.begun);
  EXPECT_EQ(watched.text(), "");
  EXPECT_EQ(*watched.aborts, 0);
}

TEST(Watchdog, NamesWhatIsOverdue) {
  Watched watched(150ms);
  const auto ended = std::make_shared<FakeWork>("collective 1");
  ended->has_ended = true;
  watched.watchdog.watch(ended);
  watched.watchdog.watch(std::make_shared<FakeWork>("collective 2 [loss]"));
  watched.watchdog.watch(std::make_shared<FakeWork>("collective 3"));
  const auto start = Clock::now();
  ASSERT_TRUE(watched.fails_within(5s));
  EXPECT_GE(Clock::now() - start, 100ms);
  EXPECT_NE(watched.text().find("group#0: rank 0 failed in collective 2 [loss]: not finished 150 ms"),
            std::string::npos)
      << watched.text();
  watched.expect_one_abort();
  EXPECT_EQ(watched.text().find("collective 3"), std::string::npos);
}

TEST(Watchdog, CountsTimeFromTheStart) {
  // What waits for the device's own work is not overdue, however long that takes.
  Watched watched(150ms);
  const auto work = std::make_shared<FakeWork>("collective 1", /*is_started=*/false);
  watched.watchdog.watch(work);
  EXPECT_FALSE(watched.fails_within(500ms));
  work->has_started = true;
  EXPECT_TRUE(watched.fails_within(5s));
}

TEST(Watchdog, TakesProgressForLife) {
  Watched watched(1500ms);
  const auto work = std::make_shared<FakeWork>("a step");
  watched.watchdog.watch(work);
  for (int bucket = 1; bucket <= 10; ++bucket) {  // longer than the timeout in all
    std::this_thread::sleep_for(200ms);
    work->progress = bucket;
  }
  EXPECT_EQ(watched.text(), "");
  ASSERT_TRUE(watched.fails_within(5s));
  EXPECT_NE(watched.text().find("a step after bucket 10: not finished 1500 ms"), std::string::npos) << watched.text();
}

TEST(Watchdog, ReportsTheEngineAndTheDevice) {
  Watched engine(10s);
  *engine.engine_error = true;
  ASSERT_TRUE(engine.fails_within(5s));
  EXPECT_NE(engine.text().find("no collective: the cable is out"), std::string::npos) << engine.text();
  engine.expect_one_abort();

  Watched device(10s);
  const auto work = std::make_shared<FakeWork>("collective 1");
  work->broken = true;
  device.watchdog.watch(work);
  ASSERT_TRUE(device.fails_within(5s));
  EXPECT_NE(device.text().find("collective 1: an illegal address"), std::string::npos) << device.text();
  device.expect_one_abort();
}

TEST(Watchdog, FailsAtOnceOnRequest) {
  Watched watched(10s);
  watched.watchdog.watch(std::make_shared<FakeWork>("collective 1"));
  watched.watchdog.fail("the loss is not a number");
  EXPECT_NE(watched.text().find("aborted by rank 0: the loss is not a number"), std::string::npos) << watched.text();
  watched.watchdog.drain();  // does not wait for what will not end
  watched.expect_one_abort();
}

TEST(Watchdog, WhoeverAddsWorkDoesNotWaitForTheDevicesAnswer) {
  Watched watched(60s);
  std::promise<void> device;
  const auto slow = std::make_shared<FakeWork>("collective 1");
  slow->answers = device.get_future().share();
  watched.watchdog.watch(slow);
  std::this_thread::sleep_for(100ms);  // it is being asked
  auto issuing = std::async(std::launch::async, [&] {
    for (int i = 0; i < 1000; ++i) watched.watchdog.watch(std::make_shared<FakeWork>("another"));
  });
  EXPECT_EQ(issuing.wait_for(10s), std::future_status::ready);
  device.set_value();
}

TEST(Watchdog, LetsGoOfManyAtOnce) {
  Watched watched(60s);
  const auto let_go_of = [](const std::shared_ptr<FakeWork>& work) {
    while (work.use_count() > 1) std::this_thread::sleep_for(100us);
  };
  auto fastest = Clock::duration::max();  // of some: a busy machine delays this or that one
  for (int trial = 0; trial < 20; ++trial) {
    const auto one = std::make_shared<FakeWork>("one");
    one->has_ended = true;
    watched.watchdog.watch(one);
    let_go_of(one);  // it has just looked, and would look again in 20 ms
    const auto start = Clock::now();
    for (int i = 0; i < 100; ++i) watched.watchdog.watch(one);
    let_go_of(one);
    fastest = std::min(fastest, Clock::now() - start);
  }
  EXPECT_LT(fastest, 15ms);
}

TEST(Watchdog, DrainWaitsForTheEnd) {
  Watched watched(10s);
  const auto work = std::make_shared<FakeWork>("collective 1");
  watched.watchdog.watch(work);
  std::thread device([work] {
    std::this_thread::sleep_for(100ms);
    work->has_ended = true;
  });
  const auto start = Clock::now();
  watched.watchdog.drain();
  EXPECT_GE(Clock::now() - start, 80ms);
  device.join();
}

TEST(Watchdog, TellsTheOtherRanksAndHearsWhereTheyAre) {
  std::vector<std::string> texts(3);
  run_store_world(3, [&](Store& store) {
    const std::shared_ptr<Store> shared(&store, [](Store*) {});
    Watched watched(store.rank() == 1 ? 200ms : 20'000ms, shared);
    watched.watchdog.watch(std::make_shared<FakeWork>("collective " + std::to_string(store.rank() + 5)));
    EXPECT_TRUE(watched.fails_within(10s)) << store.rank();
    watched.expect_one_abort();
    texts[static_cast<std::size_t>(store.rank())] = watched.text();
  });
  EXPECT_NE(texts[1].find("rank 1 failed in collective 6: not finished 200 ms"), std::string::npos) << texts[1];
  EXPECT_NE(texts[1].find("rank 0 was in collective 5"), std::string::npos) << texts[1];
  EXPECT_NE(texts[1].find("rank 2 was in collective 7"), std::string::npos) << texts[1];
  for (const std::size_t other : {0, 2}) {
    EXPECT_NE(texts[other].find("rank 1"), std::string::npos) << texts[other];
    EXPECT_NE(texts[other].find("not finished 200 ms"), std::string::npos) << texts[other];
  }
}

TEST(Watchdog, AnEnginesErrorIsTheEchoOfARankThatIsGone) {
  std::string text;
  std::atomic<bool> engine_failed = false;
  run_store_world(2, [&](Store& store) {
    if (store.rank() == 1) {
      while (!engine_failed) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(50ms);  // the engine is faster
      store.abort("rank 1 is gone");
      return;
    }
    Watched watched(20s, std::shared_ptr<Store>(&store, [](Store*) {}));
    *watched.engine_error = true;
    engine_failed = true;
    EXPECT_TRUE(watched.fails_within(10s));
    text = watched.text();
    watched.expect_one_abort();
  });
  EXPECT_NE(text.find("rank 1 is gone"), std::string::npos) << text;
  EXPECT_NE(text.find("(the cable is out)"), std::string::npos) << text;
}

TEST(Watchdog, RequestReachesTheOtherRanks) {
  std::vector<std::string> texts(2);
  run_store_world(2, [&](Store& store) {
    const std::shared_ptr<Store> shared(&store, [](Store*) {});
    Watched watched(20s, shared);
    watched.watchdog.watch(std::make_shared<FakeWork>("collective 1"));
    if (store.rank() == 0) watched.watchdog.fail("no space left");
    EXPECT_TRUE(watched.fails_within(10s));
    texts[static_cast<std::size_t>(store.rank())] = watched.text();
    watched.expect_one_abort();
  });
  EXPECT_NE(texts[1].find("no space left"), std::string::npos) << texts[1];
}

}  // namespace
}  // namespace lockstep
