#include "cli/scratch_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <system_error>

#include "framework/core/error.h"

namespace lockstep::cli {

ScratchDirectory::ScratchDirectory() {
  const char* const chosen = std::getenv("TMPDIR");
  const std::string parent = chosen != nullptr && *chosen != '\0' ? chosen : "/tmp";
  std::string name = parent + "/lockstep-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    throw Error(fmt::format("{}: no directory for temporary files can be made there: {}; see TMPDIR", parent,
                            std::strerror(errno)));
  }
  path_ = name;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep::cli
