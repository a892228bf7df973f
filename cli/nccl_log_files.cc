#include "cli/nccl_log_files.h"

#include <fmt/core.h>
#include <sys/mman.h>
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

constexpr const char* kFile = "NCCL_DEBUG_FILE";
// Its value where it is not the user's.
constexpr const char* kOwnFile = "LOCKSTEP_NCCL_DEBUG_FILE";

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

// The name of a new file in memory, which stays open as long as this process lives; empty where there can be none.
std::string file_in_memory() {
  const int descriptor = ::memfd_create("nccl-log", MFD_CLOEXEC);
  if (descriptor < 0) return {};
  const std::string name = fmt::format("/proc/self/fd/{}", descriptor);
  return std::ofstream(name) ? name : std::string();
}

void log_to(const std::string& file) {
  ::setenv("NCCL_DEBUG", "INFO", 1);
  // Connections are told here, and no collectives; what the user chose means nothing to one who logs nothing.
  ::setenv("NCCL_DEBUG_SUBSYS", "INIT", 1);
  ::setenv(kFile, file.c_str(), 1);
  ::setenv(kOwnFile, file.c_str(), 1);
}

std::optional<NcclLogFiles>& kept_log() {
  static std::optional<NcclLogFiles> log;
  return log;
}

}  // namespace

NcclLogFiles::NcclLogFiles(Of of) {
  const NcclSettings settings = NcclSettings::of_process();
  std::error_code ignored;
  if (const auto file = settings.find(kFile)) file_ = filled_in(file->value);
  written_before_ = std::filesystem::last_write_time(file_, ignored);
  if (settings.find("NCCL_DEBUG") || !file_.empty()) return;
  if (of == Of::this_process) {
    file_ = file_in_memory();
    if (!file_.empty()) log_to(file_);
    return;
  }
  try {
    folder_.emplace();
  } catch (const Error&) {
    return;  // then there is no log
  }
  log_to(folder_->file("%h.%p"));
}

NcclLog NcclLogFiles::read() const {
  NcclLog log;
  std::error_code ignored;
  if (!folder_) {
    // A pipe or a terminal would be waited for, or taken from its reader.
    if (!std::filesystem::is_regular_file(file_, ignored)) return log;
    if (std::filesystem::last_write_time(file_, ignored) == written_before_) return log;
    std::ifstream stream(file_);
    log.read(stream);
    return log;
  }
  for (const auto& file : std::filesystem::directory_iterator(folder_->path(), ignored)) {
    if (!file.is_regular_file(ignored)) continue;
    std::ifstream stream(file.path());
    log.read(stream);
  }
  return log;
}

void keep_own_nccl_log() { kept_log().emplace(NcclLogFiles::Of::this_process); }

NcclLog own_nccl_log() { return kept_log() ? kept_log()->read() : NcclLog(); }

bool is_set_for_log(std::string_view variable) {
  const char* file = std::getenv(kOwnFile);
  return file != nullptr && (variable == "NCCL_DEBUG=INFO" || variable == "NCCL_DEBUG_SUBSYS=INIT" ||
                             variable == fmt::format("{}={}", kFile, file));
}

}  // namespace lockstep::cli
