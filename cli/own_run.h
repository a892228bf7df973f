// Other commands of this program, run in fresh processes for their figures.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/scratch_directory.h"

namespace lockstep::cli {

// Throws std::invalid_argument where another launcher started `command`, which starts its own ranks.
void expect_no_launcher(const std::string& command);

// Runs this program with `arguments` and --json and returns what it wrote; what it prints is not shown but for errors.
// Where it fails, throws what its exit code stands for: std::invalid_argument for 2, LinkContradiction for 3 without
// figures (with them, they tell what was contradicted), else Error. Where a signal ends it, ends this process likewise.
nlohmann::ordered_json run_own(const std::vector<std::string>& arguments, const ScratchDirectory& scratch);

}  // namespace lockstep::cli
