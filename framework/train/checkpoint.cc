#include "framework/train/checkpoint.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <unordered_set>

#include "framework/core/disk_file.h"
#include "framework/core/error.h"
#include "framework/core/input_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Access = DiskFile::Access;

constexpr std::string_view kNamePrefix = "step-";
// Of a checkpoint being written or removed: what a killed process leaves under such a name, the next save clears away.
constexpr const char* kTemporarySuffix = ".tmp";
constexpr const char* kOldSuffix = ".old";

void expect_distinct(const char* where, std::span<const NamedTensor> tensors) {
  std::unordered_set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    expect(tensor.defined(), "{}: expected a tensor, got an undefined one as '{}'", where, name);
    expect(names.insert(name).second, "{}: expected each name once, got '{}' twice", where, name);
  }
}

std::string name_of_step(std::int64_t step) { return fmt::format("{}{:08}", kNamePrefix, step); }

struct Found {
  std::int64_t step;
  fs::path path;
};

// What stands under the name of a checkpoint, newest first.
std::vector<Found> list_checkpoints(const fs::path& directory) {
  std::vector<Found> found;
  std::error_code absent;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, absent)) {
    const std::string name = entry.path().filename();
    std::int64_t step = 0;
    std::from_chars(name.data() + std::min(kNamePrefix.size(), name.size()), name.data() + name.size(), step);
    if (name == name_of_step(step)) found.push_back({step, entry.path()});
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.step > b.step; });
  return found;
}

fs::path with_suffix(const fs::path& path, const char* suffix) { return path.string() + suffix; }

void remove_temporaries(const fs::path& directory) {
  const std::vector<fs::path> paths(fs::directory_iterator(directory), {});
  for (const fs::path& path : paths) {
    const bool ours = path.filename().string().starts_with(kNamePrefix);
    if (ours && path.extension() == kTemporarySuffix) fs::remove_all(path);
  }
}

// Makes room for a checkpoint of `step`: a later one would be taken for newer.
void set_aside(const fs::path& directory, std::int64_t step) {
  for (const Found& found : list_checkpoints(directory)) {
    if (found.step < step) break;
    const fs::path old = with_suffix(found.path, kOldSuffix);
    fs::remove_all(old);
    fs::rename(found.path, old);
    spdlog::warn("{}: was there before step {} was saved, so it is now {}", found.path.string(), step,
                 old.filename().string());
  }
}

void prune(const fs::path& directory, int keep) try {
  std::vector<Found> found = list_checkpoints(directory);
  for (std::size_t i = static_cast<std::size_t>(keep); i < found.size(); ++i) {
    // Renamed first: a checkpoint that is half removed must not stand under its name.
    const fs::path temporary = with_suffix(found[i].path, kTemporarySuffix);
    fs::rename(found[i].path, temporary);
    fs::remove_all(temporary);
  }
} catch (const fs::filesystem_error& error) {
  spdlog::warn("checkpoint: an old one was not removed: {}", error.what());
}

}  // namespace

std::vector<NamedTensor> model_tensors(Module& model) {
  std::vector<NamedTensor> tensors;
  for (const Parameter* parameter : model.parameters()) tensors.push_back({parameter->name, parameter->master});
  for (const NamedBuffer& buffer : model.buffers()) tensors.push_back({buffer.name, buffer.value});
  return tensors;
}

std::vector<NamedTensor> optimizer_tensors(const ParameterArena& arena, const Optimizer& optimizer) {
  std::vector<NamedTensor> tensors;
  for (const Optimizer::State& state : optimizer.state()) {
    for (const auto& [parameter, range] : arena.slots()) {
      tensors.push_back({fmt::format("optimizer/{}/{}", state.name, parameter->name),
                         state.values.slice(range.offset, range.offset + range.count)});
    }
  }
  return tensors;
}

fs::path save_checkpoint(const fs::path& run_directory, const CheckpointInfo& info,
                         std::span<const NamedTensor> tensors, int keep) {
  expect(info.step >= 0 && keep >= 0, "save_checkpoint: expected step and keep of at least 0, got {} and {}", info.step,
         keep);
  expect_distinct("save_checkpoint", tensors);
  const fs::path directory = run_directory / "checkpoints";
  const fs::path path = directory / name_of_step(info.step);
  const fs::path temporary = with_suffix(path, kTemporarySuffix);
  try {
    fs::create_directories(directory);
    remove_temporaries(directory);
    fs::create_directory(temporary);
    write_checkpoint(temporary, info, tensors);
    set_aside(directory, info.step);
    fs::rename(temporary, path);
    DiskFile(directory, Access::read).sync();
    DiskFile(directory / "..", Access::read).sync();
  } catch (const std::exception& error) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw Error(fmt::format("save_checkpoint: {} was not saved: {}", path.string(), error.what()));
  }
  if (keep > 0) prune(directory, keep);
  return path;
}

fs::path find_latest(const fs::path& directory) {
  std::vector<Found> candidates = list_checkpoints(directory / "checkpoints");
  if (holds_checkpoint(directory)) candidates = {{0, directory}};
  if (candidates.empty()) {
    reject_file(directory, "expected a run directory with checkpoints/{}, found no checkpoint", name_of_step(120));
  }
  for (const Found& candidate : candidates) {
    try {
      CheckpointReader(candidate.path).verify();
      return candidate.path;
    } catch (const std::exception& error) {
      spdlog::warn("checkpoint passed over: {}", error.what());
    }
  }
  reject_file(directory, "expected an intact checkpoint, found only damaged ones ({})", candidates.size());
}

CheckpointInfo read_checkpoint_info(const fs::path& checkpoint) { return CheckpointReader(checkpoint).info(); }

CheckpointInfo load_checkpoint(const fs::path& checkpoint, std::span<const NamedTensor> tensors, Surplus surplus) {
  CheckpointReader reader(checkpoint);
  expect_distinct("load_checkpoint", tensors);
  std::unordered_map<std::string_view, const CheckpointEntry*> entries;
  for (const CheckpointEntry& entry : reader.entries()) entries.emplace(entry.name, &entry);

  const auto mismatch = [&](const std::string& name, const std::string& wanted, const std::string& found) {
    reject_file(checkpoint, "expected tensor '{}' to be {}, found {} (a checkpoint of model '{}')", name, wanted, found,
                reader.info().model);
  };
  std::vector<std::pair<const CheckpointEntry*, Tensor>> copies;
  for (const NamedTensor& tensor : tensors) {
    const std::string wanted = entry_of(tensor).kind();
    const auto found = entries.find(tensor.name);
    if (found == entries.end()) mismatch(tensor.name, wanted, "none");
    if (found->second->kind() != wanted) mismatch(tensor.name, wanted, found->second->kind());
    copies.emplace_back(found->second, tensor.value);
    entries.erase(found);
  }
  for (const CheckpointEntry& entry : reader.entries()) {
    if (surplus == Surplus::refuse && entries.contains(entry.name)) mismatch(entry.name, "absent", entry.kind());
  }
  for (const auto& [entry, tensor] : copies) reader.read(*entry, tensor);
  return reader.info();
}

}  // namespace lockstep
