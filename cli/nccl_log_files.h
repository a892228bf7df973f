// NCCL's own log, kept where it can be read: the second witness beside the counters.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "cli/scratch_directory.h"
#include "framework/interconnect/nccl_log.h"

namespace lockstep::cli {

// Has NCCL write its log to files of ours, unless the user has it logged already: then the user's file is read, once it
// has been written anew. Make it while there is one thread and no communicator, and once: NCCL opens the file only
// once, and the variables that name it stay set, since threads of NCCL read the environment at any time.
class NcclLogFiles {
 public:
  enum class Of {
    this_process,  // in memory: nothing is left behind however the process ends
    programs,      // that this process starts: in files that go with this object
  };
  explicit NcclLogFiles(Of of);

  NcclLog read() const;

 private:
  std::optional<ScratchDirectory> folder_;          // of programs
  std::string file_;                                // of this process
  std::filesystem::file_time_type written_before_;  // file_; as long as it stands, another run's log is there
};

// The log of this process, kept from here to its end. Call it where NcclLogFiles may be made.
void keep_own_nccl_log();
// What it says so far: nothing where it is not kept.
NcclLog own_nccl_log();

// Whether "NAME=value" was set for this by Lockstep, here or in the process that started this one.
bool is_set_for_log(std::string_view variable);

}  // namespace lockstep::cli
