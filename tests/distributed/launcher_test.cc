#include "framework/distributed/launcher.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "framework/core/error.h"
#include "framework/distributed/environment.h"
#include "framework/distributed/process_group.h"
#include "framework/distributed/socket.h"
#include "framework/distributed/store.h"
#include "framework/distributed/world.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// The ranks are this program again, which finds in main() how it is to behave.
Environment environment() { return detect_environment(); }
std::filesystem::path folder() { return std::getenv("LAUNCHER_TEST_FOLDER"); }

// Leaves word that this rank has started, and its process.
void report() {
  const std::string rank = std::to_string(environment().rank);
  std::ofstream(folder() / (rank + ".part")) << ::getpid() << std::endl;
  std::filesystem::rename(folder() / (rank + ".part"), folder() / rank);  // there is never half a word
}

[[noreturn]] void sleep_for_ever() {
  while (true) std::this_thread::sleep_for(1s);
}

// Rank 1 returns when the other two have started; they stay.
void only_rank_1_goes_on() {
  report();
  if (environment().rank != 1) sleep_for_ever();
  const auto limit = Clock::now() + 10s;
  for (const char* other : {"0", "2"}) {
    while (!std::filesystem::exists(folder() / other) && Clock::now() < limit) std::this_thread::sleep_for(2ms);
  }
}

const std::map<std::string, std::function<int()>> kBehaviours{
    {"succeed",
     [] {
       report();
       return 0;
     }},
    {"one exits with 3",
     [] {
       only_rank_1_goes_on();
       return 3;
     }},
    {"one is killed",
     [] {
       only_rank_1_goes_on();
       return ::raise(SIGKILL);
     }},
    {"one exits with 4, the others ignore SIGTERM",
     [] {
       ::signal(SIGTERM, SIG_IGN);
       only_rank_1_goes_on();
       return 4;
     }},
    {"sleep for ever",
     [] {
       report();
       sleep_for_ever();
       return 0;
     }},
    {"meet",
     [] {
       auto store = std::make_shared<Store>(store_options(environment()));
       const auto group = make_process_group("auto", environment(), store);
       std::int32_t sum = group->rank() + 1;
       group->all_reduce(View{&sum, DType::i32, {1}}).wait();
       report();
       return sum == 6 ? 0 : 1;
     }},
    {"write variables",
     [] {
       std::ofstream file(folder() / std::to_string(environment().rank));
       for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "NCCL_NVLS_ENABLE"}) {
         const char* value = std::getenv(name);
         file << name << "=" << (value != nullptr ? value : "unset") << " ";
       }
       std::string line;
       file << (std::getline(std::cin, line) ? "input" : "no input") << std::endl;
       return 0;
     }},
};

class LauncherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("LAUNCHER_TEST_FOLDER", folder_.path().c_str(), 1);
    for (const char* name : {"LOCKSTEP_PORT", "MASTER_PORT", "NCCL_NVLS_ENABLE"}) ::unsetenv(name);
  }

  int launch_ranks(const std::string& behaviour, int ranks = 3, const LaunchOptions& options = {}) {
    std::string program = "launcher_test";
    std::string named = behaviour;
    std::vector<char*> arguments{program.data(), named.data(), nullptr};
    return launch(ranks, arguments.data(), options);
  }

  std::string word_of(int rank) const { return testing::text_of(folder_ / std::to_string(rank)); }

  void wait_for_ranks(int ranks) const {
    const auto limit = Clock::now() + 10s;
    for (int rank = 0; rank < ranks; ++rank) {
      while (word_of(rank).empty() && Clock::now() < limit) std::this_thread::sleep_for(2ms);
    }
  }

  // That every rank had started, and that no process of it is left (a zombie would count as one).
  void expect_all_gone(int ranks) const {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string word = word_of(rank);
      ASSERT_FALSE(word.empty()) << "rank " << rank << " never ran";
      EXPECT_EQ(::kill(static_cast<pid_t>(std::stol(word)), 0), -1) << "rank " << rank << " is still there";
    }
  }

  // Runs a launcher in a process of its own, and `meanwhile(its pid)` once its ranks have started.
  template <class Meanwhile>
  int status_of_launcher(const std::string& behaviour, const LaunchOptions& options, Meanwhile meanwhile) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(launch_ranks(behaviour, 3, options));
    wait_for_ranks(3);
    meanwhile(pid);
    int status = 0;
    ::waitpid(pid, &status, 0);
    return status;
  }

  TemporaryDirectory folder_;
};

TEST_F(LauncherTest, AllWellIsZero) {
  EXPECT_EQ(launch_ranks("succeed"), 0);
  expect_all_gone(3);
}

TEST_F(LauncherTest, FirstFailingRanksCodeIsReturnedAndNamed) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(launch_ranks("one exits with 3"), 3);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("rank 1 of 3"), std::string::npos) << text;
  EXPECT_NE(text.find("exit code 3"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  expect_all_gone(3);
}

TEST_F(LauncherTest, SignalOfARankIs128AndItsNumber) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(launch_ranks("one is killed"), 128 + SIGKILL);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("rank 1 of 3"), std::string::npos) << text;
  EXPECT_NE(text.find("signal 9"), std::string::npos) << text;
  expect_all_gone(3);
}

TEST_F(LauncherTest, RanksThatIgnoreSigtermAreKilledAfterTheGrace) {
  const auto start = Clock::now();
  EXPECT_EQ(launch_ranks("one exits with 4, the others ignore SIGTERM", 3, {.grace = 300ms}), 4);
  EXPECT_GE(Clock::now() - start, 300ms);
  EXPECT_LT(Clock::now() - start, 5s);
  expect_all_gone(3);
}

TEST_F(LauncherTest, SignalsArePassedOn) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const int status = status_of_launcher("sleep for ever", {}, [&](pid_t launcher) { ::kill(launcher, signal); });
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
    expect_all_gone(3);
    for (int rank = 0; rank < 3; ++rank) std::filesystem::remove(folder_ / std::to_string(rank));
  }
}

TEST_F(LauncherTest, SecondSignalKills) {
  const auto start = Clock::now();
  // Rank 1 gives up, the others do not end; the user loses patience long before the grace has passed.
  const int status =
      status_of_launcher("one exits with 4, the others ignore SIGTERM", {.grace = 60s}, [&](pid_t launcher) {
        for (int i = 0; i < 2; ++i) {
          std::this_thread::sleep_for(50ms);
          ::kill(launcher, SIGINT);
        }
      });
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_LT(Clock::now() - start, 10s);
  expect_all_gone(3);
}

TEST_F(LauncherTest, RanksDieWithTheLauncher) {
  status_of_launcher("sleep for ever", {}, [&](pid_t launcher) { ::kill(launcher, SIGKILL); });
  // They are nobody's children here, so whoever adopts them needs a moment to reap them.
  const auto limit = Clock::now() + 5s;
  for (int rank = 0; rank < 3; ++rank) {
    const std::string stat = "/proc/" + std::to_string(std::stol(word_of(rank))) + "/stat";
    const auto alive = [&] {
      const std::string text = testing::text_of(stat);
      return !text.empty() && !testing::contains(text, ") Z ");
    };
    while (alive() && Clock::now() < limit) std::this_thread::sleep_for(2ms);
    EXPECT_FALSE(alive()) << "rank " << rank;
  }
}

#ifdef LOCKSTEP_HAS_GLOO
TEST_F(LauncherTest, RanksMeetWithoutAnyPortBeingChosen) {
  EXPECT_EQ(launch_ranks("meet"), 0);
  expect_all_gone(3);
}

TEST_F(LauncherTest, RanksMeetOnANamedPort) {
  int port = 0;
  {
    const Socket free = listen_on(0, true);
    port = port_of(free);
  }
  ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  EXPECT_EQ(launch_ranks("meet"), 0);
}
#endif

TEST_F(LauncherTest, RanksKnowTheirPlaceAndReadNothing) {
  EXPECT_EQ(launch_ranks("write variables", 2), 0);
  EXPECT_EQ(word_of(0), "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 NCCL_NVLS_ENABLE=0 no input\n");
  EXPECT_EQ(word_of(1), "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 NCCL_NVLS_ENABLE=0 no input\n");
  ::setenv("NCCL_NVLS_ENABLE", "2", 1);
  EXPECT_EQ(launch_ranks("write variables", 1), 0);
  EXPECT_EQ(word_of(0), "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 NCCL_NVLS_ENABLE=2 no input\n");
}

TEST_F(LauncherTest, WrongUseIsRefused) {
  EXPECT_THROW(launch_ranks("succeed", 0), std::invalid_argument);
  const Socket taken = listen_on(0, true);
  ::setenv("LOCKSTEP_PORT", std::to_string(port_of(taken)).c_str(), 1);
  EXPECT_THROW(launch_ranks("succeed"), std::invalid_argument);
}

std::set<std::string> as_set(const std::vector<std::string>& environment) {
  EXPECT_EQ(std::set(environment.begin(), environment.end()).size(), environment.size()) << "a variable is there twice";
  return {environment.begin(), environment.end()};
}

TEST(ChildEnvironment, NvlsIsTheUsersOrOffAndNeverUnset) {
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(as_set(child_environment({"PATH=/bin"}, rank, 3, 4000, 5)).contains("NCCL_NVLS_ENABLE=0"));
    const auto chosen = as_set(child_environment({"NCCL_NVLS_ENABLE=1"}, rank, 3, 4000, 5));
    EXPECT_TRUE(chosen.contains("NCCL_NVLS_ENABLE=1"));
    EXPECT_FALSE(chosen.contains("NCCL_NVLS_ENABLE=0"));
  }
}

TEST(ChildEnvironment, ReplacesWhatAnotherLauncherSaid) {
  const auto environment = as_set(child_environment({"HOME=/root", "RANK=7", "WORLD_SIZE=9", "LOCKSTEP_STORE_FD=3",
                                                     "TORCHELASTIC_USE_AGENT_STORE=True", "RANKING=kept"},
                                                    1, 2, 4000, 5));
  EXPECT_EQ(environment, (std::set<std::string>{"HOME=/root", "RANKING=kept", "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1",
                                                "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=4000",
                                                "LOCKSTEP_LAUNCHER=1", "LOCKSTEP_PORT=4000", "NCCL_NVLS_ENABLE=0"}));
  EXPECT_TRUE(as_set(child_environment({}, 0, 2, 4000, 5)).contains("LOCKSTEP_STORE_FD=5"));
}

TEST(RunRanks, TheBodyRunsInTheContextAskedFor) {
  char* argv[] = {nullptr};
  bool ran = false;
  const auto body = [&](World& world) {
    ran = true;
    EXPECT_EQ(world.size(), 1);
    EXPECT_EQ(context().exec().threads, 3);
    EXPECT_EQ(context().dtype(), DType::f64);
  };
  EXPECT_EQ(run_ranks(1, argv, body, {.threads = 3, .dtype = DType::f64}), 0);
  EXPECT_TRUE(ran);
}

TEST(RunRanks, WhatTheBodyThrowsBecomesTheExitCode) {
  char* argv[] = {nullptr};
  EXPECT_EQ(run_ranks(1, argv, [](World&) { throw std::invalid_argument("wrong use"); }), 2);
  EXPECT_EQ(run_ranks(1, argv, [](World&) { throw LinkContradiction("another link"); }), 3);
  EXPECT_EQ(run_ranks(1, argv, [](World&) { throw std::runtime_error("a failure"); }), 1);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc == 2) {
    if (const auto found = lockstep::kBehaviours.find(argv[1]); found != lockstep::kBehaviours.end())
      return found->second();
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
