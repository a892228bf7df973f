#include "cli/own_run.h"

#include <fmt/ranges.h>

#include <csignal>
#include <filesystem>
#include <system_error>

#include "cli/json_file.h"
#include "cli/supervised_process.h"
#include "framework/core/error.h"
#include "framework/core/exit_codes.h"
#include "framework/distributed/environment.h"

namespace lockstep::cli {
namespace {

// Far more than anything takes that has not gone wrong.
constexpr std::chrono::minutes kLimit{30};

}  // namespace

void expect_no_launcher(const std::string& command) {
  const Launcher launcher = detect_environment().launcher;
  expect(launcher == Launcher::none, "{}: starts its own ranks, so it is not to be started by {}", command,
         launcher_name(launcher));
}

nlohmann::ordered_json run_own(const std::vector<std::string>& arguments, const ScratchDirectory& scratch) {
  const std::string file = scratch.file("figures.json");
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  std::vector<std::string> command{"/proc/self/exe"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  command.insert(command.end(), {"--json", file});
  const int code = SupervisedProcess(command, SupervisedProcess::Kind::helper).wait(kLimit);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if (code != 128 + signal) continue;
    // Somebody ended it, and so this process, in the same way.
    std::filesystem::remove_all(scratch.path(), ignored);
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  const std::string how = code > 128 ? fmt::format("was ended by signal {}", code - 128)
                                     : fmt::format("ended with exit code {}, see above", code);
  const std::string failure = fmt::format("lockstep {}: {}", fmt::join(arguments, " "), how);
  expect(code != kWrongUsage, "{}", failure);
  // What was contradicted in the end has its figures.
  const bool has_figures = code == kContradicted && std::filesystem::exists(file, ignored);
  if (code == kContradicted && !has_figures) throw LinkContradiction(failure);
  if (code != 0 && !has_figures) throw Error(failure);
  return read_json_file("--json", file);
}

}  // namespace lockstep::cli
