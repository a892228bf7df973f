// The files that options name for results, looked at before anything runs.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

struct OutputFile {
  std::string option;
  std::string file;  // empty: not asked for
};

// Throws std::invalid_argument where one cannot be written, or where two are the same file or one is among the inputs.
void check_outputs(std::vector<OutputFile> outputs, const std::vector<std::string>& inputs = {});

}  // namespace lockstep::cli
