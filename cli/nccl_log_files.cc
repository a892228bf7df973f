#include "cli/nccl_log_files.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "framework/core/error.h"
#include "framework/distributed/nccl_settings.h"

namespace lockstep::cli {

namespace {

// NCCL's name for the file of this process.
std::string filled_in(std::string pattern) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string name = host.data();
  for (const auto& [mark, text] :
       {std::pair{"%h", name.substr(0, name.find('.'))}, {"%p", fmt::format("{}", ::getpid())}}) {
    if (const std::size_t at = pattern.find(mark); at != std::string::npos) pattern.replace(at, 2, text);
  }
  return pattern;
}

}  // namespace

NcclLogFiles::NcclLogFiles() {
  const NcclSettings settings = NcclSettings::of_process();
  if (const auto file = settings.find("NCCL_DEBUG_FILE")) users_file_ = filled_in(file->value);
  if (settings.find("NCCL_DEBUG") || !users_file_.empty()) return;
  try {
    folder_.emplace();
  } catch (const Error&) {
    return;  // then there is no log
  }
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("NCCL_DEBUG_FILE", folder_->file("%h.%p").c_str(), 1);
}

NcclLogFiles::~NcclLogFiles() {
  if (!folder_) return;
  ::unsetenv("NCCL_DEBUG");
  ::unsetenv("NCCL_DEBUG_FILE");
}

NcclLog NcclLogFiles::read() const {
  NcclLog log;
  std::error_code ignored;
  if (!folder_) {
    std::ifstream stream(users_file_);
    log.read(stream);
    return log;
  }
  for (const auto& file : std::filesystem::directory_iterator(folder_->path(), ignored)) {
    std::ifstream stream(file.path());
    log.read(stream);
  }
  return log;
}

}  // namespace lockstep::cli
