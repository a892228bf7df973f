// A program that is run to its end, and whose processes are known.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace lockstep::cli {

class SupervisedProcess {
 public:
  // Starts `command` with this process's environment, input and outputs. What outlives its own parent becomes this
  // process's child. Throws std::invalid_argument where it cannot be started.
  explicit SupervisedProcess(const std::vector<std::string>& command);
  // Kills what is left of it.
  ~SupervisedProcess();
  SupervisedProcess(const SupervisedProcess&) = delete;
  SupervisedProcess& operator=(const SupervisedProcess&) = delete;

  // Its exit code, as a shell shows it: 128 + N where signal N ended it. SIGTERM and SIGHUP are passed on to it; those
  // of the keyboard reach it by themselves.
  int wait();

 private:
  pid_t pid_ = -1;
};

// Whether process `pid` is this one or descends from it.
bool is_own_process(unsigned pid);

}  // namespace lockstep::cli
