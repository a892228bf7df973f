#include "framework/core/replace_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "framework/core/error.h"

namespace lockstep {

void replace_file(const std::filesystem::path& file, const std::string& text) {
  std::error_code error;  // of the directory: writing the file tells
  std::filesystem::create_directories(file.parent_path(), error);
  const std::filesystem::path fresh = file.string() + ".new";
  std::ofstream stream(fresh, std::ios::trunc);
  stream << text << std::flush;
  if (!stream) throw Error(fmt::format("{}: cannot be written: {}", file.string(), std::strerror(errno)));
  std::filesystem::rename(fresh, file, error);
  if (error) throw Error(fmt::format("{}: cannot be written: {}", file.string(), error.message()));
}

}  // namespace lockstep
