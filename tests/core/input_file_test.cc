#include "framework/core/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <stdexcept>

#include "tests/support/temporary_directory.h"
#include "tests/support/thrown_by.h"

namespace lockstep {
namespace {

using testing::thrown_by;

TEST(InputFile, IsNamedWithWhatIsWrong) {
  EXPECT_EQ(thrown_by<std::invalid_argument>([] { reject_file("a/b", "expected {} lines, found {}", 2, 1); }),
            "a/b: expected 2 lines, found 1");
}

TEST(InputFile, IsNoPipeAndNoDevice) {
  const TemporaryDirectory directory;
  const std::filesystem::path pipe = directory.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& path : {pipe, std::filesystem::path("/dev/null")}) {
    EXPECT_EQ(thrown_by<std::invalid_argument>([&] { expect_no_special_file(path); }),
              path.string() + ": expected a file, found something else");
  }
  EXPECT_NO_THROW(expect_no_special_file(directory.path()));
  EXPECT_NO_THROW(expect_no_special_file(directory.path() / "missing")) << "which says more when it is opened";
}

}  // namespace
}  // namespace lockstep
