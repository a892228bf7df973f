#include "framework/core/input_file.h"

#include <system_error>

namespace lockstep {

void expect_no_special_file(const std::filesystem::path& path) {
  std::error_code ignored;  // what cannot be looked at cannot be opened either
  if (std::filesystem::is_other(path, ignored)) reject_file(path, "expected a file, found something else");
}

}  // namespace lockstep
