// The files that options name for results: looked at before anything runs, and written at the end.
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

// A file then holds `text` or is as before; what is none (/dev/stdout, a pipe, a link) is written to. Throws Error,
// naming `option`.
void write_output(const std::string& option, const std::string& file, const std::string& text);

}  // namespace lockstep::cli
