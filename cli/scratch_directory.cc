#include "cli/scratch_directory.h"

#include <stdlib.h>

#include <system_error>

#include "framework/core/error.h"

namespace lockstep::cli {

ScratchDirectory::ScratchDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "lockstep-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw Error(fmt::format("{}: cannot be made", name));
  path_ = name;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep::cli
