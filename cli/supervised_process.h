// A program that is run to its end, and whose processes are known.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::cli {

class SupervisedProcess {
 public:
  enum class Output : std::uint8_t { shown, discarded };

  // Starts `command` with this process's environment, input and outputs; `output` is what becomes of its standard one.
  // What outlives its own parent becomes this process's child. Throws std::invalid_argument where it cannot be started.
  explicit SupervisedProcess(const std::vector<std::string>& command, Output output = Output::shown);
  // Kills what is left of it.
  ~SupervisedProcess();
  SupervisedProcess(const SupervisedProcess&) = delete;
  SupervisedProcess& operator=(const SupervisedProcess&) = delete;

  // Its exit code, as a shell shows it: 128 + N where signal N ended it. SIGTERM and SIGHUP are passed on to it; those
  // of the keyboard reach it by themselves.
  int wait();
  // The same, but what takes longer than `limit` is told to end, and killed 10 s later.
  int wait(std::chrono::seconds limit);

 private:
  pid_t pid_ = -1;
};

// Whether process `pid` is this one or descends from it.
bool is_own_process(unsigned pid);

}  // namespace lockstep::cli
