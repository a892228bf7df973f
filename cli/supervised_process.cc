#include "cli/supervised_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "framework/core/error.h"

namespace lockstep::cli {
namespace {

std::atomic<pid_t> supervised{-1};

// Of signals that another process sent: those of the terminal reach the program by themselves.
void pass_on(int signal, siginfo_t* info, void* /*context*/) {
  if (const pid_t pid = supervised; pid > 0 && info->si_code <= 0) ::kill(pid, signal);
}

// What is handled while a program runs. Ignored SIGCHLD, which may be inherited, would lose its exit code.
constexpr std::array kHandled{SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGCHLD};

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

SupervisedProcess::SupervisedProcess(const std::vector<std::string>& command, Kind kind) : name_(command.front()) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::array<int, 2> failure{};  // closed by exec, or holds why there was none
  if (::pipe2(failure.data(), O_CLOEXEC) != 0) throw Error(fmt::format("pipe: {}", ::strerror(errno)));
  sigset_t all;
  sigset_t mask;
  sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, &mask);  // until it is known whom to pass them to
  for (std::size_t i = 0; i < kHandled.size(); ++i) {
    struct sigaction action {};
    if (kHandled[i] != SIGCHLD) {
      action.sa_sigaction = pass_on;
      action.sa_flags = SA_SIGINFO | SA_RESTART;
    }
    ::sigaction(kHandled[i], &action, &previous_[i]);
  }
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  int code = pid_ < 0 ? errno : 0;
  if (pid_ == 0) become(argv.data(), kind, parent, mask, failure[1]);
  supervised = pid_;
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::close(failure[1]);
  if (pid_ > 0 && ::read(failure[0], &code, sizeof code) == sizeof code) wait();
  ::close(failure[0]);
  if (code != 0) restore_signals();
  expect(code == 0, "{}: expected a program, but it cannot be started: {}", name_, ::strerror(code));
}

// Between fork and exec, where other threads may have held any lock: nothing here allocates.
void SupervisedProcess::become(char* const* argv, Kind kind, pid_t parent, const sigset_t& mask, int failure_fd) const {
  for (std::size_t i = 0; i < kHandled.size(); ++i) ::sigaction(kHandled[i], &previous_[i], nullptr);
  if (kind == Kind::helper) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it died before the line above
    ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
  }
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(argv[0], argv);
  const int code = errno;
  const auto written = ::write(failure_fd, &code, sizeof code);
  ::_exit(written == sizeof code ? 127 : 126);
}

SupervisedProcess::~SupervisedProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  restore_signals();
}

void SupervisedProcess::restore_signals() {
  supervised = pid_ = -1;
  for (std::size_t i = 0; i < kHandled.size(); ++i) ::sigaction(kHandled[i], &previous_[i], nullptr);
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
  const bool in_time = ends_by(Clock::now() + limit);
  if (!in_time) {
    ::kill(pid_, SIGTERM);
    if (!ends_by(Clock::now() + std::chrono::seconds(10))) ::kill(pid_, SIGKILL);
  }
  const int code = wait();
  if (!in_time) throw Error(fmt::format("{}: took longer than {} s", name_, limit.count()));
  return code;
}

int SupervisedProcess::wait() {
  int status = 0;
  pid_t ended = 0;
  do {
    ended = ::waitpid(pid_, &status, 0);
  } while (ended < 0 && errno == EINTR);
  const int failure = errno;
  restore_signals();
  if (ended < 0) throw Error(fmt::format("{}: its exit code is lost: {}", name_, ::strerror(failure)));
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
