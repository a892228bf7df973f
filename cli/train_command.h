// lockstep train MODEL
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace lockstep::cli {

// Adds the subcommand; the returned function runs it, with the whole command line to start ranks with, and returns the
// exit code.
std::function<int(char** argv)> add_train_command(CLI::App& app);

}  // namespace lockstep::cli
