#include "framework/distributed/bounded_call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A call that does not come back until the test lets it.
struct Stuck {
  std::shared_ptr<std::atomic<bool>> over = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<std::atomic<bool>> ended = std::make_shared<std::atomic<bool>>(false);
  std::function<void()> call() const {
    return [over = over, ended = ended] {
      while (!*over) std::this_thread::sleep_for(1ms);
      *ended = true;
    };
  }
  ~Stuck() {
    *over = true;
    while (!*ended) std::this_thread::sleep_for(1ms);
  }
};

TEST(BoundedCall, WaitsForTheEndAndRethrows) {
  bool ran = false;
  EXPECT_TRUE(run_bounded([&ran] { ran = true; }, 10s));
  EXPECT_TRUE(ran);
  EXPECT_THROW(run_bounded([] { throw std::runtime_error("broken"); }, 10s), std::runtime_error);
}

TEST(BoundedCall, LeavesBehindWhatIsLate) {
  const Stuck stuck;
  const auto start = Clock::now();
  EXPECT_FALSE(run_bounded(stuck.call(), 100ms));
  EXPECT_GE(Clock::now() - start, 100ms);
  EXPECT_LT(Clock::now() - start, 5s);
}

TEST(BoundedCall, GivesUpWhenToldTo) {
  const Stuck stuck;
  const auto start = Clock::now();
  EXPECT_FALSE(run_bounded(stuck.call(), 60s, [&] { return Clock::now() - start > 50ms; }));
  EXPECT_LT(Clock::now() - start, 5s);
}

}  // namespace
}  // namespace lockstep
