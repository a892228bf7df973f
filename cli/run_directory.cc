#include "cli/run_directory.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <system_error>

#include "framework/core/error.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

std::string reason() { return std::generic_category().message(errno); }

}  // namespace

void check_run_directory(const std::string& out, const std::string& resume) {
  if (out.empty() || out == resume) return;
  std::error_code failure;  // whatever cannot be looked at cannot be written to either, which is said then
  const fs::path path(out);
  expect(!fs::exists(path / "config.json", failure),
         "--out {}: already holds a run; choose another directory, or continue it with --resume {}", out, out);
  expect(!fs::exists(path, failure) || (fs::is_directory(path, failure) && fs::is_empty(path, failure)),
         "--out {}: expected a new or an empty directory, found something else", out);
}

RunDirectory::RunDirectory(const std::string& out, const std::string& resume, const std::string& model) {
  check_run_directory(out, resume);
  std::error_code failure;
  if (!out.empty() || !resume.empty()) {
    path_ = out.empty() ? resume : out;
    fs::create_directories(path_, failure);
  } else {
    const std::string name = fmt::format("runs/{}-{:%Y%m%d-%H%M%S}", model, fmt::localtime(std::time(nullptr)));
    path_ = name;
    fs::create_directories(path_.parent_path(), failure);
    // Making a directory tells whether another run of the same second was quicker.
    for (int i = 2; !failure && !fs::create_directory(path_, failure); ++i) path_ = fmt::format("{}-{}", name, i);
  }
  expect(!failure, "--out {}: cannot be made: {}", path_.string(), failure.message());
  lock();
  check_run_directory(out, resume);  // again: another run may have come and gone before the lock was taken
}

RunDirectory::~RunDirectory() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

void RunDirectory::lock() {
  // Of the directory itself: no file is left behind, and the lock goes with the process however it ends.
  lock_fd_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  expect(lock_fd_ >= 0 && access(path_.c_str(), W_OK) == 0, "--out {}: cannot be written to: {}", path_.string(),
         reason());
  expect(flock(lock_fd_, LOCK_EX | LOCK_NB) == 0, "--out {}: another run writes to it at this moment", path_.string());
}

}  // namespace lockstep::cli
