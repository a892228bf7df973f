// The `lockstep` command.
#include <fcntl.h>
#include <fmt/core.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "cli/all_reduce_command.h"
#include "cli/claims_command.h"
#include "cli/compare_command.h"
#include "cli/eval_command.h"
#include "cli/measure_command.h"
#include "cli/predict_command.h"
#include "cli/printable.h"
#include "cli/report_command.h"
#include "cli/topology_command.h"
#include "cli/train_command.h"
#include "cli/with_link_command.h"
#include "framework/core/error.h"
#include "framework/core/exit_codes.h"
#include "framework/core/nearest_name.h"
#include "framework/core/version.h"

namespace lockstep::cli {
namespace {

struct Command {
  const char* name;
  std::function<int(char** argv)> run;
};

// "--bach: unknown option; did you mean --batch-per-rank?"
std::string unknown_argument(const CLI::App& app, const std::string& argument) {
  const auto chosen = app.get_subcommands();
  std::vector<std::string> known;
  if (chosen.empty()) {
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
      known.push_back(command->get_name());
  } else {
    for (const CLI::Option* option : chosen.front()->get_options()) known.push_back(option->get_name());
  }
  const std::string nearest = nearest_name(argument.substr(0, argument.find('=')), known);
  return fmt::format("{}: unknown {}{}; see --help", argument, chosen.empty() ? "command" : "option",
                     nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

int report(const std::string& text, int code) {
  const char* rank = std::getenv("RANK");  // under any launcher of ours; others label the output themselves
  fmt::print(stderr, "lockstep{}: {}\n", rank != nullptr ? fmt::format(" rank {}", printable(rank)) : "",
             printable(text));
  return code;
}

// Earlier flushes may have failed, after which the last one has nothing to do.
int with_output_written(int code) {
  std::cout.flush();  // where --help goes
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout) return code;
  return report("the output cannot be written", kFailed);
}

int run(int argc, char** argv) {
  // A closed stream would lend its number to the next file that is opened, and the run would write its progress there.
  for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = open("/dev/null", O_RDWR)) {
    if (fd > STDERR_FILENO) {
      close(fd);
      break;
    }
  }
  spdlog::set_default_logger(spdlog::stderr_logger_mt("lockstep"));  // stdout is for results
  spdlog::set_pattern("lockstep: %l: %v");
  CLI::App app("Trains reference models by synchronous data parallelism.", "lockstep");
  app.set_version_flag("--version", [] { return version_text(); });
  app.require_subcommand(1);
  const Command commands[] = {{"train", add_train_command(app)},           {"eval", add_eval_command(app)},
                              {"all-reduce", add_all_reduce_command(app)}, {"measure", add_measure_command(app)},
                              {"topology", add_topology_command(app)},     {"with-link", add_with_link_command(app)},
                              {"claims", add_claims_command(app)},         {"compare", add_compare_command(app)},
                              {"predict", add_predict_command(app)},       {"report", add_report_command(app)}};
  app.allow_extras();
  for (CLI::App* command : app.get_subcommands({})) command->allow_extras();

  try {
    app.parse(argc, argv);
    std::vector<std::string> extras = app.remaining(/*recurse=*/true);
    std::erase(extras, "--");  // with-link's, which CLI11 counts among them
    if (!extras.empty()) return report(unknown_argument(app, extras.front()), kWrongUsage);
    for (const Command& command : commands) {
      if (!app.got_subcommand(command.name)) continue;
      return with_output_written(command.run(argv));
    }
    return kWrongUsage;
  } catch (const CLI::Success& success) {  // --help, --version
    return with_output_written(app.exit(success));
  } catch (const CLI::ParseError& error) {
    const auto extras = app.remaining(true);
    return report(extras.empty() ? fmt::format("{}; see --help", error.what()) : unknown_argument(app, extras.front()),
                  kWrongUsage);
  } catch (const std::bad_alloc&) {
    return report("there is not enough memory", kFailed);
  } catch (const std::exception& error) {
    return report(error.what(), exit_code_of(error));
  }
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) { return lockstep::cli::run(argc, argv); }
