#include "framework/core/disk_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <stdexcept>
#include <string>

#include "framework/core/error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text.h"
#include "tests/support/thrown_by.h"

namespace lockstep {
namespace {

using Access = DiskFile::Access;
using testing::text_of;
using testing::thrown_by;

TEST(DiskFile, HoldsWhatWasWritten) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "file";
  DiskFile file(path, Access::write_new);
  file.write("one ", 4);
  file.write("two", 3);
  file.sync();
  EXPECT_EQ(text_of(path), "one two");
  std::array<char, 3> part{};
  DiskFile(path, Access::read).read(part.data(), 3, 4);
  EXPECT_EQ(std::string(part.data(), 3), "two");
  EXPECT_NO_THROW(DiskFile(directory.path(), Access::read).sync());
}

TEST(DiskFile, SaysWhatIsWrong) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "file";
  EXPECT_EQ(thrown_by<Error>([&] { DiskFile(path, Access::read); }),
            "cannot open " + path.string() + ": No such file or directory");
  DiskFile(path, Access::write_new).write("abc", 3);
  EXPECT_EQ(thrown_by<Error>([&] { DiskFile(path, Access::write_new); }),
            "cannot open " + path.string() + ": File exists");
  EXPECT_EQ(text_of(path), "abc");
  std::array<char, 3> part{};
  EXPECT_EQ(thrown_by<std::invalid_argument>([&] { DiskFile(path, Access::read).read(part.data(), 3, 1); }),
            path.string() + ": expected 3 bytes at offset 1, found the end of the file");
  EXPECT_THROW(DiskFile(directory.path(), Access::read).read(part.data(), 1, 0), Error) << "no bytes in a directory";
  const std::filesystem::path pipe = directory.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(thrown_by<std::invalid_argument>([&] { DiskFile(pipe, Access::read); }),
            pipe.string() + ": expected a file, found something else");
}

}  // namespace
}  // namespace lockstep
