#include "framework/core/disk_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "framework/core/error.h"
#include "framework/core/input_file.h"

namespace lockstep {
namespace {

// e: not for the programs that this process starts; x: a new file
const char* mode_of(DiskFile::Access access) { return access == DiskFile::Access::read ? "rbe" : "wbxe"; }

}  // namespace

DiskFile::DiskFile(std::filesystem::path path, Access access) : path_(std::move(path)), file_(nullptr, &std::fclose) {
  if (access == Access::read) expect_no_special_file(path_);
  file_.reset(std::fopen(path_.c_str(), mode_of(access)));
  if (!file_) fail("open");
}

void DiskFile::write(const void* data, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  if (std::fwrite(data, 1, size, file_.get()) != size) fail("write");
}

void DiskFile::read(void* data, std::int64_t bytes, std::int64_t offset) {
  if (::fseeko(file_.get(), offset, SEEK_SET) != 0) fail("read");
  const auto size = static_cast<std::size_t>(bytes);
  if (std::fread(data, 1, size, file_.get()) == size) return;
  if (std::ferror(file_.get()) != 0) fail("read");
  reject_file(path_, "expected {} bytes at offset {}, found the end of the file", bytes, offset);
}

void DiskFile::sync() {
  if (std::fflush(file_.get()) != 0) fail("write");
  if (::fsync(::fileno(file_.get())) != 0 && errno != EINVAL) fail("flush");
}

void DiskFile::fail(const char* action) const {
  throw Error(fmt::format("cannot {} {}: {}", action, path_.string(), std::strerror(errno)));
}

}  // namespace lockstep
