// One checkpoint on the disk, a directory of two files:
//   tensors.bin    the elements of every tensor, one tensor behind the other, little-endian
//   manifest.json  format version, CheckpointInfo, and each tensor's name, dtype, shape, offset, bytes and crc32
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "framework/core/disk_file.h"
#include "framework/core/tensor.h"

namespace lockstep {

struct NamedTensor {
  std::string name;
  Tensor value;
};

// What a resume goes by, beside the tensors. The place in the data follows from `step`, every random draw from `seed`
// and `step`.
struct CheckpointInfo {
  std::int64_t step = 0;  // optimizer steps since the start of training
  std::uint64_t seed = 0;
  std::string model = {};         // as the command names it
  std::string data = {};          // the training set, to notice that it is another one
  std::int64_t data_size = 0;     // its samples
  std::int64_t global_batch = 0;  // samples of one step
  int world_size = 1;             // for information: any number of ranks may go on

  bool operator==(const CheckpointInfo&) const = default;
};

// What the manifest says of a tensor.
struct CheckpointEntry {
  std::string name = {};
  std::string dtype = {};
  std::vector<std::int64_t> shape = {};
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::uint32_t crc32 = 0;

  // "f32 (6, 5, 5, 1)"
  std::string kind() const;
};

// Of a tensor that is nowhere yet.
CheckpointEntry entry_of(const NamedTensor& tensor);

struct CheckpointManifest {
  int format = 0;
  CheckpointInfo info = {};
  std::vector<CheckpointEntry> tensors = {};
};

// Whether `directory` is a checkpoint, intact or not.
bool holds_checkpoint(const std::filesystem::path& directory);

// Writes both files into a directory without them, and flushes all three. Throws Error.
void write_checkpoint(const std::filesystem::path& directory, const CheckpointInfo& info,
                      std::span<const NamedTensor> tensors);

// Reads the tensors of one checkpoint, each with its checksum. Throws std::invalid_argument, which names file and
// place, where anything is not as it was written.
class CheckpointReader {
 public:
  // Looks at the manifest and at how long tensors.bin is.
  explicit CheckpointReader(const std::filesystem::path& checkpoint);

  const CheckpointInfo& info() const { return manifest_.info; }
  const std::vector<CheckpointEntry>& entries() const { return manifest_.tensors; }

  // Into `target`, which is of the entry's kind.
  void read(const CheckpointEntry& entry, const Tensor& target);
  // Reads every byte, to see whether it is as it was written.
  void verify();

 private:
  void expect_crc32(const CheckpointEntry& entry, std::uint32_t crc) const;

  CheckpointManifest manifest_;
  DiskFile file_;
};

}  // namespace lockstep
