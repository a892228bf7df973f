// The NCCL variables in force: those of the environment, and those of the files that NCCL reads by itself.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct NcclSetting {
  std::string name;
  std::string value;
  std::string source;  // "the environment", the path of a file, or kSetByLockstep
};
inline constexpr const char* kSetByLockstep = "lockstep";

class NcclSettings {
 public:
  // `environment` as "NAME=value". Like NCCL: the environment goes before the files and an earlier file before a later
  // one; a file has one NAME=value a line without spaces around "=", and # at the start of a line begins a comment.
  // A variable that is empty counts as not set. Files that cannot be read, and lines that say nothing, are skipped.
  NcclSettings(const std::vector<std::string>& environment, const std::vector<std::filesystem::path>& files);
  // With the files that NCCL reads: $NCCL_CONF_FILE (NCCL 2.23 or later), else ~/.nccl.conf; then /etc/nccl.conf.
  explicit NcclSettings(const std::vector<std::string>& environment);
  // Of this process.
  static NcclSettings of_process();

  std::optional<NcclSetting> find(std::string_view name) const;
  // NCCL_NVLS_ENABLE as it is to be set for every process that uses NCCL: the user's value, else 0. Unset it would mean
  // automatic, and multicast by NVLink switches that others share can fail.
  NcclSetting nvls() const;
  // In the order of their names.
  const std::vector<NcclSetting>& all() const { return settings_; }
  // Those of the files above that are there.
  const std::vector<std::filesystem::path>& files() const { return files_; }

 private:
  std::vector<NcclSetting> settings_;
  std::vector<std::filesystem::path> files_;
};

}  // namespace lockstep
