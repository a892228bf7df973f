// Worlds of processes, on which tests of several ranks stand.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "framework/distributed/store.h"
#include "tests/support/seed.h"
#include "tests/support/worlds.h"

namespace lockstep {
namespace {

// A copy of another process would have that one's.
const pid_t kProcessAtStart = ::getpid();

TEST(ProcessWorld, RanksHaveNothingOfTheProcessThatStartsThem) {
  EXPECT_EQ(run_process_world(2, [](const Environment&) { EXPECT_EQ(::getpid(), kProcessAtStart); }),
            (std::vector<int>{0, 0}));
}

TEST(ProcessWorld, EachWorldOfATestHasItsBody) {
  for (const int number : {5, 6, 7}) {
    const std::vector<int> statuses = run_process_world(2, [number](const Environment& environment) {
      {
        Store store(store_options(environment));
        const std::string seed = std::to_string(testing::test_seed());
        if (store.rank() == 0) store.set("seed", seed);
        EXPECT_EQ(store.get("seed"), seed);
      }
      if (environment.rank == 1) ::_exit(number);
    });
    EXPECT_EQ(statuses, (std::vector<int>{0, number << 8}));
  }
}

TEST(ProcessWorld, SaysHowRanksEnd) {
  const std::vector<int> statuses = run_process_world(4, [](const Environment& environment) {
    if (environment.rank == 1) throw std::runtime_error("as it should");
    if (environment.rank == 2) ADD_FAILURE() << "as it should";
    if (environment.rank == 3) ::raise(SIGKILL);
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 1 << 8, 1 << 8, SIGKILL}));
}

TEST(ProcessWorld, ARankThatNeverComesToItsBodyHasNotEndedWell) {
  const bool first = std::getenv("PROCESS_WORLD_TEST") == nullptr;
  ::setenv("PROCESS_WORLD_TEST", "ranks inherit it", 1);
  if (first) {
    EXPECT_EQ(run_process_world(1, [](const Environment&) {}), std::vector<int>{1 << 8});
  }
}

}  // namespace
}  // namespace lockstep
