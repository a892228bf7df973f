#include "cli/output_files.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "framework/core/error.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

bool are_same(const fs::path& a, const fs::path& b) {
  std::error_code failure;
  if (fs::equivalent(a, b, failure)) return true;
  return fs::weakly_canonical(fs::absolute(a, failure), failure) ==
         fs::weakly_canonical(fs::absolute(b, failure), failure);
}

void check_writable(const OutputFile& output) {
  const fs::path file(output.file);
  const fs::path directory = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code failure;
  expect(fs::is_directory(directory, failure), "{} {}: there is no such directory", output.option, output.file);
  expect(!fs::is_directory(file, failure), "{} {}: expected a file, got a directory", output.option, output.file);
  expect(::access((fs::exists(file, failure) ? file : directory).c_str(), W_OK) == 0, "{} {}: cannot be written",
         output.option, output.file);
}

}  // namespace

void check_outputs(std::vector<OutputFile> outputs, const std::vector<std::string>& inputs) {
  std::erase_if(outputs, [](const OutputFile& output) { return output.file.empty(); });
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    check_writable(*output);
    for (const std::string& input : inputs) {
      expect(!are_same(output->file, input), "{}: expected another file than {}, which is read", output->option,
             output->file);
    }
    for (auto earlier = outputs.begin(); earlier != output; ++earlier) {
      expect(!are_same(output->file, earlier->file), "{}: expected another file than {}, which {} writes",
             output->option, output->file, earlier->option);
    }
  }
}

}  // namespace lockstep::cli
