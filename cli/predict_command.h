// lockstep predict MODEL
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace lockstep::cli {

// See add_train_command.
std::function<int(char** argv)> add_predict_command(CLI::App& app);

}  // namespace lockstep::cli
