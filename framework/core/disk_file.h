// A file whose bytes are on the disk, and not only in the system's memory, once sync() has returned.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace lockstep {

// Also a directory, which can be flushed only. Reads no special file. Throws Error, with the reason of the system,
// where the disk fails.
class DiskFile {
 public:
  enum class Access : std::uint8_t { read, write_new };

  DiskFile(std::filesystem::path path, Access access);

  const std::filesystem::path& path() const { return path_; }

  void write(const void* data, std::int64_t bytes);
  // Throws std::invalid_argument where the file ends before.
  void read(void* data, std::int64_t bytes, std::int64_t offset);
  // Waits until the disk has it. Not every file system can flush a directory.
  void sync();

 private:
  [[noreturn]] void fail(const char* action) const;

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace lockstep
