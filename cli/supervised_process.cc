#include "cli/supervised_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "framework/core/error.h"

extern char** environ;

namespace lockstep::cli {
namespace {

std::atomic<pid_t> supervised{-1};

void pass_on(int signal) {
  if (const pid_t pid = supervised; pid > 0) ::kill(pid, signal);
}

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

void on_signals(std::initializer_list<int> signals, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  for (const int signal : signals) ::sigaction(signal, &action, nullptr);
}

// 0 where there is none.
unsigned parent_of(unsigned pid) {
  std::ifstream stream(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(stream, text);
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos || text.size() < name_end + 4) return 0;
  return static_cast<unsigned>(std::strtoul(text.c_str() + name_end + 4, nullptr, 10));
}

}  // namespace

SupervisedProcess::SupervisedProcess(const std::vector<std::string>& command, Output output) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  on_signals({SIGINT, SIGQUIT}, SIG_IGN);
  on_signals({SIGTERM, SIGHUP}, pass_on);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const sigset_t ignored = set_of({SIGINT, SIGQUIT});
  const sigset_t passed_on = set_of({SIGTERM, SIGHUP});
  sigset_t mask;
  ::sigprocmask(SIG_BLOCK, &passed_on, &mask);  // until it is known whom to pass them to
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigdefault(&attributes, &ignored);
  ::posix_spawnattr_setsigmask(&attributes, &mask);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  if (output == Output::discarded) {
    ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  }
  const int failure = ::posix_spawnp(&pid_, argv[0], &files, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  supervised = failure == 0 ? pid_ : -1;
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  expect(failure == 0, "{}: expected a program, but it cannot be started: {}", command.front(), ::strerror(failure));
}

SupervisedProcess::~SupervisedProcess() {
  supervised = -1;
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

int SupervisedProcess::wait(std::chrono::seconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto ends_by = [this](Clock::time_point deadline) {
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) {
      if (Clock::now() >= deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  };
  if (!ends_by(Clock::now() + limit)) {
    ::kill(pid_, SIGTERM);
    if (!ends_by(Clock::now() + std::chrono::seconds(10))) ::kill(pid_, SIGKILL);
  }
  return wait();
}

int SupervisedProcess::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  supervised = pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool is_own_process(unsigned pid) {
  const auto self = static_cast<unsigned>(::getpid());
  for (int generation = 0; pid > 1 && generation < 1000; ++generation) {
    if (pid == self) return true;
    pid = parent_of(pid);
  }
  return false;
}

}  // namespace lockstep::cli
