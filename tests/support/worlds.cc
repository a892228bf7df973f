#include "tests/support/worlds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "framework/core/error.h"
#include "framework/distributed/gloo_group.h"
#include "framework/distributed/local_group.h"
#include "framework/distributed/socket.h"
#include "tests/support/seed.h"

namespace lockstep {
namespace {

void run_threads(int size, const std::function<void(int rank)>& body) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        failures[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

Environment environment_of(int rank, int size, int port) {
  return {.rank = rank, .world_size = size, .local_rank = rank, .local_world_size = size, .store_port = port};
}

using Statuses = std::vector<int>;

// Of a process that is a rank: its place, and how the worlds ended that its test had before this one. In a variable, as
// lines of numbers.
struct Place {
  int rank, size, port, store_fd;
  std::vector<Statuses> before;
};
constexpr const char* kPlace = "LOCKSTEP_TEST_PLACE";
constexpr int kDone = 78;  // the exit code of a rank that has come to the end of its body

std::string to_string(const Place& place) {
  std::string text = fmt::format("{}={} {} {} {}", kPlace, place.rank, place.size, place.port, place.store_fd);
  for (const Statuses& statuses : place.before) text += fmt::format("\n{}", fmt::join(statuses, " "));
  return text;
}

std::optional<Place> own_place() {
  const char* text = std::getenv(kPlace);
  if (text == nullptr) return std::nullopt;
  std::istringstream lines(text);
  Place place{};
  lines >> place.rank >> place.size >> place.port >> place.store_fd;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::istringstream numbers(line);
    place.before.emplace_back(std::istream_iterator<int>(numbers), std::istream_iterator<int>());
  }
  return place;
}

struct Test {
  std::string name;
  std::int64_t start;  // a repeated one counts its worlds anew
  bool operator==(const Test&) const = default;
};
Test running_test() {
  const auto& info = *::testing::UnitTest::GetInstance()->current_test_info();
  return {std::string(info.test_suite_name()) + "." + info.name(), info.result()->start_timestamp()};
}

pid_t start_rank(const std::string& test, const Place& place) {
  std::vector<std::string> words{"rank", "--gtest_filter=" + test, "--gtest_brief=1"};
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("GTEST_")) variables.emplace_back(*variable);
  }
  variables.push_back(fmt::format("LOCKSTEP_TEST_SEED={}", testing::test_seed()));  // the same on every rank
  variables.push_back(to_string(place));
  const auto pointers_to = [](std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (std::string& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
  };
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  // To itself: which leaves it open there.
  if (place.store_fd >= 0) ::posix_spawn_file_actions_adddup2(&actions, place.store_fd, place.store_fd);
  pid_t pid = 0;
  const int failure = ::posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, pointers_to(words).data(),
                                    pointers_to(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) throw Error(fmt::format("rank {} cannot be started: error {}", place.rank, failure));
  return pid;
}

[[noreturn]] void become_rank(const Place& place, const std::function<void(const Environment&)>& body) {
  Environment environment = environment_of(place.rank, place.size, place.port);
  environment.store_fd = place.store_fd;
  int code = kDone;
  try {
    body(environment);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", place.rank, error.what());
    code = 1;
  }
  if (::testing::Test::HasFailure()) code = 1;
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace

void run_local_world(int size, const RankBody& body, const GroupOptions& options) {
  auto groups = make_local_groups(size, options);
  run_threads(size, [&](int rank) {
    const std::unique_ptr<ProcessGroup> group = std::move(groups[static_cast<std::size_t>(rank)]);
    body(*group);
  });
}

void run_store_world(int size, const std::function<void(Store&)>& body, std::chrono::milliseconds timeout) {
  Socket listener = listen_on(0, true);
  const int port = port_of(listener);
  const int fd = listener.release();
  run_threads(size, [&](int rank) {
    Store store({.port = port,
                 .listen_fd = rank == 0 ? fd : -1,
                 .rank = rank,
                 .size = size,
                 .connect_timeout = timeout,
                 .timeout = timeout});
    body(store);
  });
}

void run_gloo_world(int size, const RankBody& body, const GroupOptions& options) {
  Socket listener = listen_on(0, true);
  const int port = port_of(listener);
  const int fd = listener.release();
  run_threads(size, [&](int rank) {
    Environment environment = environment_of(rank, size, port);
    if (rank == 0) environment.store_fd = fd;
    StoreOptions store_of_rank = store_options(environment);
    store_of_rank.port = port;
    auto store = std::make_shared<Store>(store_of_rank);
    const std::unique_ptr<ProcessGroup> group = make_gloo_group(environment, store, options);
    body(*group);
  });
}

std::vector<int> run_process_world(int size, const std::function<void(const Environment&)>& body,
                                   std::chrono::milliseconds limit) {
  static Test last;
  static std::vector<Statuses> before;  // of the running test's worlds
  const Test test = running_test();
  if (std::exchange(last, test) != test) before.clear();
  if (const std::optional<Place> place = own_place()) {
    if (place->before.size() == before.size()) become_rank(*place, body);
    before.push_back(place->before[before.size()]);
    return before.back();
  }
  Socket listener = listen_on(0, true);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) {
    // Only rank 0 keeps the port open, so that the others notice when it is gone.
    const int store_fd = rank == 0 ? listener.fd() : -1;
    pids.push_back(start_rank(test.name, {rank, size, port_of(listener), store_fd, before}));
  }
  listener.close();
  const auto deadline = std::chrono::steady_clock::now() + limit;
  Statuses statuses(pids.size(), -1);
  for (std::size_t rank = 0; rank < pids.size(); ++rank) {
    while (::waitpid(pids[rank], &statuses[rank], WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) ::kill(pids[rank], SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (statuses[rank] == 0) std::fprintf(stderr, "rank %zu: the test never started its world\n", rank);
    statuses[rank] = statuses[rank] == 0 ? 1 << 8 : statuses[rank] == kDone << 8 ? 0 : statuses[rank];
  }
  before.push_back(statuses);
  return statuses;
}

}  // namespace lockstep
