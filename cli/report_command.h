// lockstep report FILE
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace lockstep::cli {

// See add_train_command.
std::function<int(char** argv)> add_report_command(CLI::App& app);

}  // namespace lockstep::cli
