// A program that is run to its end, and whose processes are known.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::cli {

class SupervisedProcess {
 public:
  enum class Kind : std::uint8_t {
    guest,   // somebody's program: it shows what it prints
    helper,  // prints nothing but errors, and is killed where this process dies
  };

  // Starts `command` with this process's environment, input and outputs. What outlives its own parent becomes this
  // process's child. Until the end of wait() SIGINT, SIGQUIT, SIGTERM and SIGHUP that this process is sent are passed
  // on to it; those of the terminal reach it by themselves, and one that another process sends to the whole process
  // group reaches it twice. Throws std::invalid_argument where it cannot be started.
  explicit SupervisedProcess(const std::vector<std::string>& command, Kind kind = Kind::guest);
  // Kills what is left of it.
  ~SupervisedProcess();
  SupervisedProcess(const SupervisedProcess&) = delete;
  SupervisedProcess& operator=(const SupervisedProcess&) = delete;

  // Its exit code, as a shell shows it: 128 + N where signal N ended it.
  int wait();
  // The same, but what takes longer than `limit` is told to end, killed 10 s later, and an Error.
  int wait(std::chrono::seconds limit);

 private:
  void restore_signals();
  [[noreturn]] void become(char* const* argv, Kind kind, pid_t parent, const sigset_t& mask, int failure_fd) const;

  std::string name_;
  pid_t pid_ = -1;
  std::array<struct sigaction, 5> previous_{};
};

// Whether process `pid` is this one or descends from it.
bool is_own_process(unsigned pid);

}  // namespace lockstep::cli
