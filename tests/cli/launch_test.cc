// Ranks started by the command itself and by others, and what happens when one of them dies.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/command.h"
#include "tests/support/gpus.h"
#include "tests/support/text.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

const char* const kTraining = "train mlp --synthetic --global-batch 64 --threads 1 ";

template <class Condition>
bool within(std::chrono::seconds limit, Condition condition) {
  for (const auto end = Clock::now() + limit; Clock::now() < end;
       std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
    if (condition()) return true;
  }
  return condition();
}

// A training on two ranks that would go on for long, and has made its first steps.
class LongRun {
 public:
  explicit LongRun(const std::string& device = "cpu") : run_(directory_ / "run") {
    const std::vector<std::string> words = {command_path(), "train",   "mlp",   "--synthetic", "--device",
                                            device,         "--ranks", "2",     "--threads",   "1",
                                            "--steps",      "1000000", "--out", run_};
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, (directory_ / "out").c_str(), O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, (directory_ / "err").c_str(), O_WRONLY | O_CREAT, 0600);
    if (posix_spawn(&launcher_, words[0].c_str(), &actions, nullptr, argv.data(), environ) != 0) {
      throw std::runtime_error("the command cannot be started");
    }
    posix_spawn_file_actions_destroy(&actions);
    EXPECT_TRUE(within(std::chrono::seconds(40),
                       [&] { return fs::exists(run_ + "/metrics.jsonl") && read_metrics_size() > 0; }));
  }
  ~LongRun() {
    for (const pid_t process : processes()) kill(process, SIGKILL);
    if (!ended_) waitpid(launcher_, nullptr, 0);
  }
  LongRun(const LongRun&) = delete;
  LongRun& operator=(const LongRun&) = delete;

  pid_t launcher() const { return launcher_; }
  std::vector<pid_t> processes() const { return processes_with({run_}); }
  // Throws where none runs: a signal to process -1 would go to every process there is.
  pid_t a_rank() const {
    for (const pid_t process : processes()) {
      if (process != launcher_) return process;
    }
    throw std::runtime_error("no rank runs: " + errors());
  }
  // The exit code, as a shell shows it; -1 where it does not end in time.
  int ends_within(std::chrono::seconds limit) {
    int status = 0;
    ended_ = within(limit, [&] { return waitpid(launcher_, &status, WNOHANG) == launcher_; });
    if (!ended_) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string errors() const { return testing::text_of(directory_ / "err"); }

 private:
  std::uintmax_t read_metrics_size() const { return fs::file_size(run_ + "/metrics.jsonl"); }

  TemporaryDirectory directory_;
  std::string run_;
  pid_t launcher_ = -1;
  bool ended_ = false;
};

TEST(Launch, ARankThatIsKilledEndsAll) {
  LongRun run;
  kill(run.a_rank(), SIGKILL);
  EXPECT_EQ(run.ends_within(std::chrono::seconds(30)), 128 + SIGKILL) << run.errors();
  EXPECT_NE(run.errors().find("rank"), std::string::npos) << run.errors();
  EXPECT_TRUE(within(std::chrono::seconds(5), [&] { return run.processes().empty(); }));
}

// A kernel of the one that is left waits for the other.
TEST(Gpu, ARankThatIsKilledEndsAll) {
  SKIP_WITHOUT_GPUS(2);
  LongRun run("cuda");
  kill(run.a_rank(), SIGKILL);
  EXPECT_EQ(run.ends_within(std::chrono::seconds(30)), 128 + SIGKILL) << run.errors();
  EXPECT_NE(run.errors().find("was ended by signal 9"), std::string::npos) << run.errors();
  EXPECT_TRUE(within(std::chrono::seconds(5), [&] { return run.processes().empty(); }));
  std::cout << run.errors() << std::endl;
}

TEST(Launch, ALauncherThatIsKilledLeavesNoRank) {
  LongRun run;
  kill(run.launcher(), SIGKILL);
  EXPECT_EQ(run.ends_within(std::chrono::seconds(5)), 128 + SIGKILL);
  EXPECT_TRUE(within(std::chrono::seconds(30), [&] { return run.processes().empty(); })) << run.errors();
}

TEST(Launch, AnInterruptEndsAll) {
  LongRun run;
  kill(run.launcher(), SIGINT);
  EXPECT_EQ(run.ends_within(std::chrono::seconds(30)), 128 + SIGINT) << run.errors();
  EXPECT_TRUE(within(std::chrono::seconds(5), [&] { return run.processes().empty(); }));
}

// As under nohup.
TEST(Launch, WhatWasIgnoredAtTheStartEndsNothing) {
  const auto previous = ::signal(SIGHUP, SIG_IGN);
  LongRun run;
  ::signal(SIGHUP, previous);
  kill(run.launcher(), SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(run.processes().size(), 3u);
  kill(run.launcher(), SIGTERM);
  EXPECT_EQ(run.ends_within(std::chrono::seconds(30)), 128 + SIGTERM) << run.errors();
}

// "T" for one that is stopped.
std::string state_of(pid_t process) {
  std::ifstream stream("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(stream, text);
  const std::size_t name_end = text.rfind(')');
  return name_end == std::string::npos ? "" : text.substr(name_end + 2, 1);
}

TEST(Launch, AStopOfTheTerminalStopsTheRanksToo) {
  LongRun run;
  const std::vector<pid_t> processes = run.processes();
  EXPECT_EQ(processes.size(), 3u);
  const auto all = [&](bool stopped) {
    return std::all_of(processes.begin(), processes.end(),
                       [&](pid_t process) { return (state_of(process) == "T") == stopped; });
  };
  kill(run.launcher(), SIGTSTP);
  EXPECT_TRUE(within(std::chrono::seconds(5), [&] { return all(true); }));
  kill(run.launcher(), SIGCONT);
  EXPECT_TRUE(within(std::chrono::seconds(5), [&] { return all(false); }));
}

TEST(Launch, RanksPrintToATerminalThatStopsWhoIsInTheBackground) {
  const TemporaryDirectory files;
  std::ofstream(files / "session") << "stty tostop; " << command_path()
                                   << " all-reduce --device cpu --ranks 2 -b 8 -e 8 -n 1 -w 0\n";
  const std::string session = "timeout 20 script -qec 'sh " + (files / "session") + "' /dev/null >" + (files / "out");
  EXPECT_EQ(std::system(session.c_str()), 0);
  EXPECT_CONTAINS(testing::text_of(files / "out"), "Avg bus bandwidth");
}

TEST(Launch, VariablesOfTorchrunAreUnderstood) {
  const TemporaryDirectory runs;
  ASSERT_EQ(run_command(std::string(kTraining) + "--steps 6 --ranks 2 --out " + (runs / "own")).code, 0);
  const std::string options = std::string(kTraining) + "--steps 6 --out " + (runs / "torchrun");
  const std::string world =
      "WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(free_port()) + " ";
  CommandResult other;
  std::thread second([&] { other = run_command(options, world + "RANK=1 LOCAL_RANK=1"); });
  const CommandResult first = run_command(options, world + "RANK=0 LOCAL_RANK=0");
  second.join();
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(losses_of(runs / "torchrun"), losses_of(runs / "own"));
}

// Each of these hung for minutes or gave figures of something else.
TEST(Launch, RanksThatWereToldDifferentThingsSaySo) {
  const std::string measure = "measure mlp --device cpu --steps 1 --warmup 1 ";
  const std::string sweep = "all-reduce --device cpu -b 8 -e 8 ";
  const std::pair<std::string, std::string> differ[] = {{measure, measure + "--batch-per-rank 1"},
                                                        {measure, measure + "--emulate nvlink4"},
                                                        {measure, measure + "--alone"},
                                                        {measure, sweep},
                                                        {sweep, sweep + "-o max"},
                                                        {sweep, sweep + "--link net"}};
  for (const auto& [of_rank_0, of_rank_1] : differ) {
    const std::string world =
        "WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(free_port()) + " ";
    CommandResult other;
    std::thread second([&, &options = of_rank_1] { other = run_command(options, world + "RANK=1 LOCAL_RANK=1"); });
    const CommandResult first = run_command(of_rank_0, world + "RANK=0 LOCAL_RANK=0");
    second.join();
    EXPECT_EQ(first.code, 2) << of_rank_1 << first.err;
    EXPECT_EQ(other.code, 2) << of_rank_1 << other.err;
    expect_one_line(other.err, {"expected the same options on every rank", "rank 0 has", "this rank has"});
  }
}

TEST(Mpi, MpirunGivesTheLossesOfOwnRanks) {
  const TemporaryDirectory runs;
  ASSERT_EQ(run_command(std::string(kTraining) + "--steps 6 --ranks 2 --out " + (runs / "own")).code, 0);
  const CommandResult result = run_command(std::string(kTraining) + "--steps 6 --out " + (runs / "mpi"), "",
                                           "mpirun --allow-run-as-root --oversubscribe -np 2");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(losses_of(runs / "mpi"), losses_of(runs / "own"));
}

}  // namespace
}  // namespace lockstep
