#include "framework/distributed/nccl_settings.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

extern char** environ;

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "NCCL_";

// What NCCL's own reader takes of a name, a value and a line.
constexpr std::size_t kLongestPart = 1023;

using Settings = std::map<std::string, NcclSetting>;

void add(Settings& settings, std::string_view assignment, const std::string& source) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || !assignment.starts_with(kPrefix)) return;
  const std::string name(assignment.substr(0, std::min(equals, kLongestPart)));
  const std::string value(assignment.substr(equals + 1, kLongestPart));
  if (!value.empty()) settings.emplace(name, NcclSetting{name, value, source});
}

std::vector<fs::path> conf_files(const std::vector<std::string>& environment) {
  std::vector<fs::path> files;
  Settings settings;
  for (const std::string& assignment : environment) add(settings, assignment, {});
  if (const auto chosen = settings.find("NCCL_CONF_FILE"); chosen != settings.end()) {
    files.emplace_back(chosen->second.value);
  } else if (const passwd* user = ::getpwuid(::getuid()); user != nullptr && user->pw_dir != nullptr) {
    files.push_back(fs::path(user->pw_dir) / ".nccl.conf");
  }
  files.emplace_back("/etc/nccl.conf");
  return files;
}

}  // namespace

NcclSettings::NcclSettings(const std::vector<std::string>& environment, const std::vector<fs::path>& files) {
  Settings settings;
  for (const std::string& assignment : environment) add(settings, assignment, "the environment");
  for (const fs::path& file : files) {
    std::error_code failure;
    if (!fs::is_regular_file(file, failure)) continue;
    std::ifstream stream(file);
    if (!stream) continue;
    files_.push_back(file);
    for (std::string line; std::getline(stream, line);) {
      // NCCL sees a line end at a NUL as C does.
      if (!line.starts_with('#')) add(settings, line.c_str(), file.string());
    }
  }
  for (auto& [name, setting] : settings) settings_.push_back(std::move(setting));
}

NcclSettings::NcclSettings(const std::vector<std::string>& environment)
    : NcclSettings(environment, conf_files(environment)) {}

NcclSettings NcclSettings::of_process() {
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) environment.emplace_back(*variable);
  return NcclSettings(environment);
}

NcclSetting NcclSettings::nvls() const {
  return find("NCCL_NVLS_ENABLE").value_or(NcclSetting{"NCCL_NVLS_ENABLE", "0", kSetByLockstep});
}

std::optional<NcclSetting> NcclSettings::find(std::string_view name) const {
  const auto found = std::find_if(settings_.begin(), settings_.end(),
                                  [&](const NcclSetting& setting) { return setting.name == name; });
  return found != settings_.end() ? std::optional(*found) : std::nullopt;
}

}  // namespace lockstep
