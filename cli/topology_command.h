// lockstep topology
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>

#include "framework/interconnect/topology.h"

namespace lockstep::cli {

// See add_train_command.
std::function<int(char** argv)> add_topology_command(CLI::App& app);

nlohmann::ordered_json to_json(const Topology& topology);

}  // namespace lockstep::cli
