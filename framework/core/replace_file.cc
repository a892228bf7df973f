#include "framework/core/replace_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "framework/core/error.h"

namespace lockstep {

void replace_file(const std::filesystem::path& file, const std::string& text) {
  std::error_code error;  // of the directory: writing the file tells
  std::filesystem::create_directories(file.parent_path(), error);
  // A name that no file of the user has, and that is short enough where that of the file is.
  constexpr std::size_t kMostKept = 200;
  const std::filesystem::path fresh =
      file.parent_path() / fmt::format("{}.{}.new", file.filename().string().substr(0, kMostKept), ::getpid());
  const auto fail = [&](const std::string& why) {
    std::error_code ignored;
    std::filesystem::remove(fresh, ignored);  // on a full disk above all
    throw Error(fmt::format("{}: cannot be written: {}", file.string(), why));
  };
  std::ofstream stream(fresh, std::ios::trunc);
  stream << text << std::flush;
  if (!stream) fail(std::strerror(errno));
  std::filesystem::rename(fresh, file, error);
  if (error) fail(error.message());
}

}  // namespace lockstep
