#include "cli/output_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "framework/core/error.h"
#include "framework/core/replace_file.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

bool are_same(const fs::path& a, const fs::path& b) {
  std::error_code failure;
  if (fs::equivalent(a, b, failure)) return true;
  return fs::weakly_canonical(fs::absolute(a, failure), failure) ==
         fs::weakly_canonical(fs::absolute(b, failure), failure);
}

fs::path directory_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : "."; }

void check_writable(const OutputFile& output) {
  const fs::path file(output.file);
  const fs::path directory = directory_of(file);
  std::error_code failure;
  expect(fs::is_directory(directory, failure), "{} {}: there is no such directory", output.option, output.file);
  const bool can_be_looked_at = fs::status(file, failure).type() != fs::file_type::none;
  expect(can_be_looked_at, "{} {}: cannot be written: {}", output.option, output.file, failure.message());
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

void write_output(const std::string& option, const std::string& file, const std::string& text) {
  std::error_code failure;
  const fs::file_type type = fs::symlink_status(file, failure).type();
  const bool is_file = type == fs::file_type::regular || type == fs::file_type::not_found;
  if (is_file && ::access(directory_of(file).c_str(), W_OK) == 0) {
    try {
      return replace_file(file, text);
    } catch (const Error& error) {
      throw Error(fmt::format("{} {}", option, error.what()));
    }
  }
  // To open a pipe that nobody reads would wait for ever.
  const bool is_pipe = fs::is_fifo(file, failure);
  const int pipe = is_pipe ? ::open(file.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC) : -1;
  if (is_pipe && pipe < 0 && errno == ENXIO) {
    throw Error(fmt::format("{} {}: expected a reader at the other end of the pipe, got none", option, file));
  }
  std::ofstream stream(file);
  if (pipe >= 0) ::close(pipe);
  stream << text << std::flush;
  if (!stream) throw Error(fmt::format("{} {}: cannot be written", option, file));
}

}  // namespace lockstep::cli
