#include "framework/train/checkpoint_format.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <string_view>

#include "framework/core/error.h"
#include "framework/core/input_file.h"

namespace lockstep {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CheckpointInfo, step, seed, model, data, data_size, global_batch, world_size)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CheckpointEntry, name, dtype, shape, offset, bytes, crc32)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CheckpointManifest, format, info, tensors)

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Access = DiskFile::Access;

static_assert(std::endian::native == std::endian::little, "tensors.bin is little-endian");

constexpr int kFormat = 1;
constexpr const char* kManifestFile = "manifest.json";
constexpr const char* kTensorsFile = "tensors.bin";
// Checked and transferred at once; also the most host memory that the tensors of a GPU need on the way.
constexpr std::int64_t kPartBytes = 8 << 20;

std::uint32_t crc32_of(const void* data, std::int64_t bytes, std::uint32_t crc = 0) {
  return static_cast<std::uint32_t>(
      ::crc32_z(crc, static_cast<const unsigned char*>(data), static_cast<std::size_t>(bytes)));
}

// Holds the checksum of all that follows: a flipped bit in a number of the manifest is to be noticed as well.
std::string first_line(std::string_view rest) {
  return fmt::format("{{ \"crc32\": \"{:08x}\",\n", crc32_of(rest.data(), static_cast<std::int64_t>(rest.size())));
}

std::string to_text(const CheckpointManifest& manifest) {
  // A path that is no UTF-8 is no reason to lose a checkpoint.
  const std::string rest = json(manifest).dump(1, ' ', false, json::error_handler_t::replace).substr(2) + "\n";
  return first_line(rest) + rest;
}

CheckpointManifest parse(const std::string& text) {
  const json content = json::parse(text);
  expect(content.at("format") == kFormat, "format {}, expected {}", content.at("format").dump(), kFormat);
  return content;
}

// Opens a file of a checkpoint to read it. Where it is not there, a wrong path was given: no failure of the disk.
DiskFile open_part(const fs::path& checkpoint, const char* name) try {
  return DiskFile(checkpoint / name, Access::read);
} catch (const Error& error) {
  reject_file(checkpoint, "expected a checkpoint, but {}", error.what());
}

CheckpointManifest read_manifest(const fs::path& checkpoint) {
  DiskFile file = open_part(checkpoint, kManifestFile);
  std::string text(fs::file_size(file.path()), '\0');
  file.read(text.data(), static_cast<std::int64_t>(text.size()), 0);
  const std::string rest = text.substr(std::min(text.size(), first_line({}).size()));
  if (text != first_line(rest) + rest) reject_file(file.path(), "expected other bytes by its crc32: it is damaged");
  try {
    return parse(text);
  } catch (const std::exception& error) {
    reject_file(file.path(), "expected the manifest of a checkpoint, found {}", error.what());
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

}  // namespace

std::string CheckpointEntry::kind() const { return fmt::format("{} ({})", dtype, fmt::join(shape, ", ")); }

CheckpointEntry entry_of(const NamedTensor& tensor) {
  const auto extents = tensor.value.shape().span();
  return {.name = tensor.name,
          .dtype = dtype_name(tensor.value.dtype()),
          .shape = {extents.begin(), extents.end()},
          .bytes = tensor.value.view().bytes()};
}

bool holds_checkpoint(const fs::path& directory) { return fs::exists(directory / kManifestFile); }

void write_checkpoint(const fs::path& directory, const CheckpointInfo& info, std::span<const NamedTensor> tensors) {
  CheckpointManifest manifest{.format = kFormat, .info = info};
  DiskFile tensors_file(directory / kTensorsFile, Access::write_new);
  std::int64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    CheckpointEntry& entry = manifest.tensors.emplace_back(entry_of(tensor));
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
  DiskFile manifest_file(directory / kManifestFile, Access::write_new);
  manifest_file.write(text.data(), static_cast<std::int64_t>(text.size()));
  manifest_file.sync();
  DiskFile(directory, Access::read).sync();
}

CheckpointReader::CheckpointReader(const fs::path& checkpoint)
    : manifest_(read_manifest(checkpoint)), file_(open_part(checkpoint, kTensorsFile)) {
  std::int64_t end = 0;
  const auto size = static_cast<std::int64_t>(fs::file_size(file_.path()));
  for (const CheckpointEntry& entry : manifest_.tensors) {
    end = entry.offset + entry.bytes;
    if (end > size) {
      reject_file(file_.path(), "expected {} bytes of tensor '{}' at offset {}, found the end of the file at offset {}",
                  entry.bytes, entry.name, entry.offset, size);
    }
  }
  if (end < size) reject_file(file_.path(), "expected its end at offset {}, found {} more bytes", end, size - end);
}

void CheckpointReader::read(const CheckpointEntry& entry, const Tensor& target) {
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

void CheckpointReader::verify() {
  std::vector<std::byte> buffer;
  for (const CheckpointEntry& entry : manifest_.tensors) {
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

void CheckpointReader::expect_crc32(const CheckpointEntry& entry, std::uint32_t crc) const {
  if (crc == entry.crc32) return;
  reject_file(file_.path(), "expected crc32 {:08x} of tensor '{}' at offset {}, found {:08x}: it is damaged",
              entry.crc32, entry.name, entry.offset, crc);
}

}  // namespace lockstep
