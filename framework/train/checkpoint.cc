#include "framework/train/checkpoint.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <unordered_map>
#include <unordered_set>

#include "framework/core/error.h"

namespace lockstep {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CheckpointInfo, step, seed, model, data, data_size, global_batch, world_size)

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "tensors.bin is little-endian");

constexpr int kFormat = 1;
constexpr const char* kManifestFile = "manifest.json";
constexpr const char* kTensorsFile = "tensors.bin";
constexpr std::string_view kNamePrefix = "step-";
// Of a checkpoint being written or removed: what a killed process leaves under such a name, the next save clears away.
constexpr const char* kTemporarySuffix = ".tmp";
constexpr const char* kOldSuffix = ".old";
// Checked and transferred at once; also the most host memory that the tensors of a GPU need on the way.
constexpr std::int64_t kPartBytes = 8 << 20;

template <class... Args>
[[noreturn]] void reject(const fs::path& file, fmt::format_string<Args...> text, Args&&... args) {
  throw std::invalid_argument(file.string() + ": " + fmt::format(text, std::forward<Args>(args)...));
}

// A file, or a directory to be flushed, that is open as long as this lives.
class File {
 public:
  File(fs::path path, const char* mode) : path_(std::move(path)), file_(std::fopen(path_.c_str(), mode), &std::fclose) {
    if (!file_) fail("open");
  }

  const fs::path& path() const { return path_; }

  void write(const void* data, std::int64_t bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    if (std::fwrite(data, 1, size, file_.get()) != size) fail("write");
  }

  void read(void* data, std::int64_t bytes, std::int64_t offset) {
    if (::fseeko(file_.get(), offset, SEEK_SET) != 0) fail("read");
    const auto size = static_cast<std::size_t>(bytes);
    if (std::fread(data, 1, size, file_.get()) == size) return;
    if (std::ferror(file_.get()) != 0) fail("read");
    reject(path_, "expected {} bytes at offset {}, found the end of the file", bytes, offset);
  }

  // Waits until the disk has it. Not every file system can flush a directory.
  void sync() {
    if (std::fflush(file_.get()) != 0) fail("write");
    if (::fsync(::fileno(file_.get())) != 0 && errno != EINVAL) fail("flush");
  }

 private:
  [[noreturn]] void fail(const char* action) const {
    throw Error(fmt::format("cannot {} {}: {}", action, path_.string(), std::strerror(errno)));
  }

  fs::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

constexpr const char* kRead = "rbe";    // e: not for the programs that this process starts
constexpr const char* kWrite = "wbxe";  // x: a new file

std::uint32_t crc32_of(const void* data, std::int64_t bytes, std::uint32_t crc = 0) {
  return static_cast<std::uint32_t>(
      ::crc32_z(crc, static_cast<const unsigned char*>(data), static_cast<std::size_t>(bytes)));
}

struct Entry {
  std::string name = {};
  std::string dtype = {};
  std::vector<std::int64_t> shape = {};
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::uint32_t crc32 = 0;

  std::string kind() const { return fmt::format("{} ({})", dtype, fmt::join(shape, ", ")); }
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Entry, name, dtype, shape, offset, bytes, crc32)

Entry entry_of(const NamedTensor& tensor) {
  const auto extents = tensor.value.shape().span();
  return {.name = tensor.name,
          .dtype = dtype_name(tensor.value.dtype()),
          .shape = {extents.begin(), extents.end()},
          .bytes = tensor.value.view().bytes()};
}

struct Manifest {
  int format = kFormat;
  CheckpointInfo info = {};
  std::vector<Entry> tensors = {};
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Manifest, format, info, tensors)

// Holds the checksum of all that follows: a flipped bit in a number of the manifest is to be noticed as well.
std::string first_line(std::string_view rest) {
  return fmt::format("{{ \"crc32\": \"{:08x}\",\n", crc32_of(rest.data(), static_cast<std::int64_t>(rest.size())));
}

std::string to_text(const Manifest& manifest) {
  json content = manifest;
  if (const auto& best = manifest.info.best_metric) content["info"]["best_metric"] = *best;
  // A path that is no UTF-8 is no reason to lose a checkpoint.
  const std::string rest = content.dump(1, ' ', false, json::error_handler_t::replace).substr(2) + "\n";
  return first_line(rest) + rest;
}

Manifest parse(const std::string& text) {
  const json content = json::parse(text);
  expect(content.at("format") == kFormat, "format {}, expected {}", content.at("format").dump(), kFormat);
  Manifest manifest = content;
  const json& info = content.at("info");
  // A number that is not finite was written as null.
  if (info.contains("best_metric") && info["best_metric"].is_number()) manifest.info.best_metric = info["best_metric"];
  return manifest;
}

// Opens a file of a checkpoint to read it. Where it is not there, a wrong path was given: no failure of the disk.
File open_part(const fs::path& checkpoint, const char* name) try {
  return File(checkpoint / name, kRead);
} catch (const Error& error) {
  reject(checkpoint, "expected a checkpoint, but {}", error.what());
}

Manifest read_manifest(const fs::path& checkpoint) {
  File file = open_part(checkpoint, kManifestFile);
  std::string text(fs::file_size(file.path()), '\0');
  file.read(text.data(), static_cast<std::int64_t>(text.size()), 0);
  const std::string rest = text.substr(std::min(text.size(), first_line({}).size()));
  if (text != first_line(rest) + rest) reject(file.path(), "expected other bytes by its crc32: it is damaged");
  try {
    return parse(text);
  } catch (const std::exception& error) {
    reject(file.path(), "expected the manifest of a checkpoint, found {}", error.what());
  }
}

// Calls visit(part, host) for parts of bounded size: `host` is the part's own memory or, for a GPU's, a buffer.
template <class Visitor>
void for_each_part(const Tensor& tensor, Visitor visit) {
  const Tensor flat = tensor.detach().reshape({tensor.numel()});
  const std::int64_t step = kPartBytes / dtype_bytes(tensor.dtype());
  std::vector<std::byte> buffer;
  for (std::int64_t begin = 0; begin < flat.numel(); begin += step) {
    const Tensor part = flat.slice(begin, std::min(begin + step, flat.numel()));
    View host = part;
    if (part.device() != DeviceType::cpu) {
      buffer.resize(kPartBytes);
      host.data = buffer.data();
    }
    visit(part, host);
  }
}

// Reads the tensors of one checkpoint, each with its checksum.
class Reader {
 public:
  // Throws std::invalid_argument where the manifest is damaged or tensors.bin is not as long as it says.
  explicit Reader(const fs::path& checkpoint)
      : manifest_(read_manifest(checkpoint)), file_(open_part(checkpoint, kTensorsFile)) {
    std::int64_t end = 0;
    const auto size = static_cast<std::int64_t>(fs::file_size(file_.path()));
    for (const Entry& entry : manifest_.tensors) {
      end = entry.offset + entry.bytes;
      if (end > size) {
        reject(file_.path(), "expected {} bytes of tensor '{}' at offset {}, found the end of the file at offset {}",
               entry.bytes, entry.name, entry.offset, size);
      }
    }
    if (end < size) reject(file_.path(), "expected its end at offset {}, found {} more bytes", end, size - end);
  }

  const CheckpointInfo& info() const { return manifest_.info; }
  const std::vector<Entry>& entries() const { return manifest_.tensors; }

  void read(const Entry& entry, const Tensor& target) {
    std::int64_t offset = entry.offset;
    std::uint32_t crc = 0;
    for_each_part(target, [&](const Tensor& part, const View& host) {
      file_.read(host.data, host.bytes(), offset);
      offset += host.bytes();
      crc = crc32_of(host.data, host.bytes(), crc);
      if (host.data != part.view().data) part.copy_from_host(host);
    });
    expect_crc32(entry, crc);
  }

  // Reads every byte, to see whether it is as it was written.
  void verify() {
    std::vector<std::byte> buffer;
    for (const Entry& entry : manifest_.tensors) {
      std::uint32_t crc = 0;
      for (std::int64_t done = 0; done < entry.bytes; done += kPartBytes) {
        const std::int64_t bytes = std::min(kPartBytes, entry.bytes - done);
        buffer.resize(static_cast<std::size_t>(bytes));
        file_.read(buffer.data(), bytes, entry.offset + done);
        crc = crc32_of(buffer.data(), bytes, crc);
      }
      expect_crc32(entry, crc);
    }
  }

 private:
  void expect_crc32(const Entry& entry, std::uint32_t crc) const {
    if (crc == entry.crc32) return;
    reject(file_.path(), "expected crc32 {:08x} of tensor '{}' at offset {}, found {:08x}: it is damaged", entry.crc32,
           entry.name, entry.offset, crc);
  }

  Manifest manifest_;
  File file_;
};

void write_checkpoint(const fs::path& directory, const CheckpointInfo& info, std::span<const NamedTensor> tensors) {
  Manifest manifest{.info = info};
  File tensors_file(directory / kTensorsFile, kWrite);
  std::int64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    Entry& entry = manifest.tensors.emplace_back(entry_of(tensor));
    entry.offset = offset;
    for_each_part(tensor.value, [&](const Tensor& part, const View& host) {
      if (host.data != part.view().data) part.copy_to_host(host);
      entry.crc32 = crc32_of(host.data, host.bytes(), entry.crc32);
      tensors_file.write(host.data, host.bytes());
    });
    offset += entry.bytes;
  }
  tensors_file.sync();

  const std::string text = to_text(manifest);
  File manifest_file(directory / kManifestFile, kWrite);
  manifest_file.write(text.data(), static_cast<std::int64_t>(text.size()));
  manifest_file.sync();
  File(directory, kRead).sync();
}

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
    File(directory, kRead).sync();
    File(directory / "..", kRead).sync();
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
  if (fs::exists(directory / kManifestFile)) candidates = {{0, directory}};
  if (candidates.empty()) {
    reject(directory, "expected a run directory with checkpoints/{}, found no checkpoint", name_of_step(120));
  }
  for (const Found& candidate : candidates) {
    try {
      Reader(candidate.path).verify();
      return candidate.path;
    } catch (const std::exception& error) {
      spdlog::warn("checkpoint passed over: {}", error.what());
    }
  }
  reject(directory, "expected an intact checkpoint, found only damaged ones ({})", candidates.size());
}

CheckpointInfo read_checkpoint_info(const fs::path& checkpoint) { return Reader(checkpoint).info(); }

CheckpointInfo load_checkpoint(const fs::path& checkpoint, std::span<const NamedTensor> tensors, Surplus surplus) {
  Reader reader(checkpoint);
  expect_distinct("load_checkpoint", tensors);
  std::unordered_map<std::string_view, const Entry*> entries;
  for (const Entry& entry : reader.entries()) entries.emplace(entry.name, &entry);

  const auto mismatch = [&](const std::string& name, const std::string& wanted, const std::string& found) {
    reject(checkpoint, "expected tensor '{}' to be {}, found {} (a checkpoint of model '{}')", name, wanted, found,
           reader.info().model);
  };
  std::vector<std::pair<const Entry*, Tensor>> copies;
  for (const NamedTensor& tensor : tensors) {
    const std::string wanted = entry_of(tensor).kind();
    const auto found = entries.find(tensor.name);
    if (found == entries.end()) mismatch(tensor.name, wanted, "none");
    if (found->second->kind() != wanted) mismatch(tensor.name, wanted, found->second->kind());
    copies.emplace_back(found->second, tensor.value);
    entries.erase(found);
  }
  for (const Entry& entry : reader.entries()) {
    if (surplus == Surplus::refuse && entries.contains(entry.name)) mismatch(entry.name, "absent", entry.kind());
  }
  for (const auto& [entry, tensor] : copies) reader.read(*entry, tensor);
  return reader.info();
}

}  // namespace lockstep
