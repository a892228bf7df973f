#include "framework/distributed/launcher.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <string_view>

#include "framework/core/error.h"
#include "framework/distributed/environment.h"
#include "framework/distributed/nccl_settings.h"
#include "framework/distributed/socket.h"

extern char** environ;

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// Told by this launcher, or by another that started this process and speaks of other ranks.
constexpr std::array kOwnVariables{"RANK",
                                   "WORLD_SIZE",
                                   "LOCAL_RANK",
                                   "LOCAL_WORLD_SIZE",
                                   "MASTER_ADDR",
                                   "MASTER_PORT",
                                   "TORCHELASTIC_RUN_ID",
                                   "TORCHELASTIC_USE_AGENT_STORE",
                                   "LOCKSTEP_LAUNCHER",
                                   "LOCKSTEP_PORT",
                                   "LOCKSTEP_STORE_FD"};

std::string_view name_of(std::string_view assignment) { return assignment.substr(0, assignment.find('=')); }

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Holds back the signals that the launcher waits for, and puts things back as they were. One that was ignored when it
// started, as by nohup, stays so: held back, it would be taken after all.
class SignalWait {
 public:
  SignalWait() {
    sigemptyset(&awaited_);
    sigaddset(&awaited_, SIGCHLD);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTSTP}) {
      if (!is_ignored(signal)) sigaddset(&awaited_, signal);
    }
    ::sigprocmask(SIG_BLOCK, &awaited_, &previous_);
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &standard, &previous_child_);  // inherited as "ignore" there would be no exit codes
  }
  ~SignalWait() {
    ::sigaction(SIGCHLD, &previous_child_, nullptr);
    ::sigprocmask(SIG_SETMASK, &previous_, nullptr);
  }
  SignalWait(const SignalWait&) = delete;
  SignalWait& operator=(const SignalWait&) = delete;

  // The next signal, or 0 when `limit` has passed.
  int next(std::chrono::milliseconds limit) const {
    const timespec time{limit.count() / 1000, static_cast<long>(limit.count() % 1000) * 1'000'000};
    return std::max(::sigtimedwait(&awaited_, nullptr, &time), 0);
  }

  const sigset_t& previous() const { return previous_; }

 private:
  sigset_t awaited_{};
  sigset_t previous_{};
  struct sigaction previous_child_ {};
};

class Ranks {
 public:
  Ranks(int count, char** argv, const LaunchOptions& options)
      : count_(count), argv_(argv), options_(options), pids_(static_cast<std::size_t>(count), 0) {}

  // Nobody stays behind, not even where start() throws.
  ~Ranks() {
    send(SIGKILL);
    for (const pid_t pid : pids_) {
      if (pid != 0) ::waitpid(pid, nullptr, 0);
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void start() {
    const Socket listener = listen_on(named_store_port().value_or(0), true);
    std::vector<std::string> base;
    for (char** variable = environ; *variable != nullptr; ++variable) base.emplace_back(*variable);
    for (int rank = 0; rank < count_; ++rank) {
      std::vector<std::string> environment = child_environment(base, rank, count_, port_of(listener), listener.fd());
      const std::vector<char*> variables = pointers_to(environment);
      const pid_t parent = ::getpid();
      const pid_t pid = ::fork();
      if (pid < 0) throw Error(fmt::format("launcher: rank {} cannot be started: {}", rank, error_text(errno)));
      if (pid == 0) become_rank(parent, rank == 0 ? listener.fd() : -1, variables.data());
      ::setpgid(pid, pid);  // in both processes, so that it is done whichever goes first
      pids_[static_cast<std::size_t>(rank)] = pid;
    }
  }

  int wait() {
    while (running() > 0) {
      const int signal = signals_.next(std::chrono::milliseconds(kill_at_ ? 50 : 1000));
      if (signal == SIGTSTP) {
        stop_with_ranks();
      } else if (signal != 0 && signal != SIGCHLD) {
        pass_on(signal);
      }
      reap();
      if (kill_at_ && Clock::now() >= *kill_at_) send(SIGKILL);
    }
    return code_;
  }

 private:
  static std::string error_text(int code) { return std::strerror(code); }  // NOLINT(concurrency-mt-unsafe)

  // Between fork and exec: nothing here allocates.
  [[noreturn]] void become_rank(pid_t parent, int store_fd, char* const* variables) const {
    ::setpgid(0, 0);
    ::signal(SIGTTOU, SIG_IGN);  // a terminal set to "tostop" must not stop who prints to it from there
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it died before the line above
    if (store_fd >= 0) ::fcntl(store_fd, F_SETFD, 0);
    const int input = ::open("/dev/null", O_RDONLY);
    if (input >= 0) ::dup2(input, STDIN_FILENO);
    if (input > STDIN_FILENO) ::close(input);
    ::sigprocmask(SIG_SETMASK, &signals_.previous(), nullptr);
    ::execve("/proc/self/exe", argv_, variables);
    ::_exit(127);
  }

  long running() const {
    return std::count_if(pids_.begin(), pids_.end(), [](pid_t pid) { return pid != 0; });
  }

  void send(int signal) const {
    for (const pid_t pid : pids_) {
      if (pid != 0) ::kill(-pid, signal);
    }
  }

  void stop_by(Clock::time_point deadline) {
    if (!kill_at_) kill_at_ = deadline;
  }

  // Ctrl-Z reaches only the launcher's own process group.
  void stop_with_ranks() const {
    send(SIGSTOP);
    ::raise(SIGSTOP);  // until the user continues it
    send(SIGCONT);
  }

  void pass_on(int signal) {
    if (std::exchange(told_by_user_, true)) {
      kill_at_ = Clock::now();
      return;
    }
    if (code_ == 0) code_ = 128 + signal;
    send(signal);
    stop_by(Clock::now() + options_.grace);
  }

  void reap() {
    for (int rank = 0; rank < count_; ++rank) {
      pid_t& pid = pids_[static_cast<std::size_t>(rank)];
      int status = 0;
      if (pid == 0 || ::waitpid(pid, &status, WNOHANG) != pid) continue;
      const pid_t ended = std::exchange(pid, 0);
      if (status != 0 && code_ == 0) first_failure(rank, ended, status);
    }
  }

  void first_failure(int rank, pid_t pid, int status) {
    std::string how;
    if (WIFSIGNALED(status)) {
      code_ = 128 + WTERMSIG(status);
      how = fmt::format("was ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
    } else {
      code_ = WEXITSTATUS(status);
      how = fmt::format("ended with exit code {}", code_);
    }
    fmt::print(stderr, "lockstep: rank {} of {} (process {}) {}; the other ranks are ended\n", rank, count_, pid, how);
    send(SIGTERM);
    stop_by(Clock::now() + options_.grace);
  }

  const int count_;
  char** argv_;
  const LaunchOptions options_;
  const SignalWait signals_;
  std::vector<pid_t> pids_;  // of each rank, 0 once it has ended; each leads a process group of its own
  int code_ = 0;
  bool told_by_user_ = false;
  std::optional<Clock::time_point> kill_at_;
};

}  // namespace

std::vector<std::string> child_environment(const std::vector<std::string>& base, int rank, int ranks, int port,
                                           int store_fd) {
  const NcclSetting nvls = NcclSettings(base).nvls();
  std::vector<std::string> environment;
  for (const std::string& assignment : base) {
    const std::string_view name = name_of(assignment);
    if (name != nvls.name && std::find(kOwnVariables.begin(), kOwnVariables.end(), name) == kOwnVariables.end()) {
      environment.push_back(assignment);
    }
  }
  const auto set = [&](const char* name, const auto& value) {
    environment.push_back(fmt::format("{}={}", name, value));
  };
  set("RANK", rank);
  set("WORLD_SIZE", ranks);
  set("LOCAL_RANK", rank);
  set("LOCAL_WORLD_SIZE", ranks);
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", port);
  set("LOCKSTEP_LAUNCHER", 1);
  set("LOCKSTEP_PORT", port);
  if (rank == 0) set("LOCKSTEP_STORE_FD", store_fd);
  set(nvls.name.c_str(), nvls.value);
  return environment;
}

int launch(int ranks, char** argv, const LaunchOptions& options) {
  expect(ranks >= 1, "launcher: expected at least 1 rank, got {}", ranks);
  Ranks started(ranks, argv, options);
  started.start();
  return started.wait();
}

}  // namespace lockstep
