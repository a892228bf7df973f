// Runs the `lockstep` command as a user does.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace lockstep {

struct CommandResult {
  int code = -1;  // as a shell shows it: 128 + N where signal N ended it
  std::string out;
  std::string err;
};

// The program under test: the one that was built with the tests, or LOCKSTEP_COMMAND of the environment.
std::string command_path();

// `arguments` is shell text, `environment` as in "RANK=3 WORLD_SIZE=2", `prefix` what stands before the program. Killed
// after 60 s (code 124). GPUs are hidden from it: ranks are on CPUs wherever the test runs.
CommandResult run_command(const std::string& arguments, const std::string& environment = "",
                          const std::string& prefix = "");

// The same with the GPUs that this process sees, and killed after as many seconds as are given.
CommandResult run_gpu_command(const std::string& arguments, const std::string& environment = "", int seconds = 60);

// A port that nobody listened on a moment ago.
int free_port();

// Processes that have each of the texts on their command line.
std::vector<pid_t> processes_with(const std::vector<std::string>& parts);

// One line that holds each of the texts.
void expect_one_line(const std::string& text, const std::vector<std::string>& parts);

nlohmann::json read_json(const std::string& file);

// The lines of a run's metrics.jsonl.
std::vector<nlohmann::json> read_metrics(const std::string& run_directory);

// The losses of a run, step by step, to the last digit.
std::vector<double> losses_of(const std::string& run_directory);

}  // namespace lockstep
