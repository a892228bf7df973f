#include "cli/nccl_log_files.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "framework/core/error.h"
#include "framework/distributed/nccl_settings.h"

namespace lockstep::cli {

NcclLogFiles::NcclLogFiles() {
  const NcclSettings settings = NcclSettings::of_process();
  if (settings.find("NCCL_DEBUG") || settings.find("NCCL_DEBUG_FILE")) return;
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
  if (!folder_) return log;
  for (const auto& file : std::filesystem::directory_iterator(folder_->path(), ignored)) {
    std::ifstream stream(file.path());
    log.read(stream);
  }
  return log;
}

}  // namespace lockstep::cli
