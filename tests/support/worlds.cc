#include "tests/support/worlds.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <thread>
#include <utility>

#include "framework/distributed/gloo_group.h"
#include "framework/distributed/local_group.h"
#include "framework/distributed/socket.h"

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
  Socket listener = listen_on(0, true);
  const int port = port_of(listener);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) {
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
      Environment environment = environment_of(rank, size, port);
      // Only rank 0 keeps the port open, so that the others notice when it is gone.
      if (rank == 0) environment.store_fd = listener.release();
      listener.close();
      try {
        body(environment);
        ::_exit(0);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        ::_exit(1);
      }
    }
    pids.push_back(pid);
  }
  listener.close();
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::vector<int> statuses(pids.size(), -1);
  for (std::size_t rank = 0; rank < pids.size(); ++rank) {
    while (::waitpid(pids[rank], &statuses[rank], WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) ::kill(pids[rank], SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  return statuses;
}

}  // namespace lockstep
