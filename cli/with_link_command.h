// lockstep with-link MODE -- COMMAND ...
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace lockstep::cli {

// See add_train_command.
std::function<int(char** argv)> add_with_link_command(CLI::App& app);

}  // namespace lockstep::cli
