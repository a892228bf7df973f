#include "cli/scratch_directory.h"

#include <stdlib.h>

#include <system_error>

#include "framework/core/error.h"

namespace lockstep::cli {

ScratchDirectory::ScratchDirectory() {
  std::error_code failure;
  std::string name = (std::filesystem::temp_directory_path(failure) / "lockstep-XXXXXX").string();
  if (failure) throw Error(fmt::format("TMPDIR: no directory for temporary files: {}", failure.message()));
  if (::mkdtemp(name.data()) == nullptr) throw Error(fmt::format("{}: cannot be made", name));
  path_ = name;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep::cli
