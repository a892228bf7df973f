// NCCL's own log of the processes here, kept where it can be read: the second witness beside the counters.
#pragma once

#include <optional>
#include <string>

#include "cli/scratch_directory.h"
#include "framework/interconnect/nccl_log.h"

namespace lockstep::cli {

// While this lives, NCCL writes its log to files of ours, in this process and in those that it starts, unless the user
// has it logged already: then what this process writes to the user's file is read. NCCL takes note of that once: make
// it before the first communicator.
class NcclLogFiles {
 public:
  NcclLogFiles();
  ~NcclLogFiles();
  NcclLogFiles(const NcclLogFiles&) = delete;
  NcclLogFiles& operator=(const NcclLogFiles&) = delete;

  NcclLog read() const;

 private:
  std::optional<ScratchDirectory> folder_;
  std::string users_file_;
};

}  // namespace lockstep::cli
