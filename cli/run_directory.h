// The directory that a training run writes to, held by one run at a time.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::cli {

// Throws std::invalid_argument unless a run may be started in `out` (empty: a new directory is chosen later) or
// continued in `resume`: an earlier run, or anything else that a directory holds, is never overwritten.
void check_run_directory(const std::string& out, const std::string& resume);

// Made where it is missing, and locked until the object or the process ends.
class RunDirectory {
 public:
  // Without `out` and `resume`: runs/MODEL-TIME. Throws std::invalid_argument as check_run_directory does, and where
  // the directory cannot be written to or another run writes to it at this moment.
  RunDirectory(const std::string& out, const std::string& resume, const std::string& model);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  void lock();

  std::filesystem::path path_;
  int lock_fd_ = -1;
};

}  // namespace lockstep::cli
