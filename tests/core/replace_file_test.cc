#include "framework/core/replace_file.h"

#include <gtest/gtest.h>

#include "framework/core/error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/text.h"

namespace lockstep {
namespace {

using testing::text_of;

TEST(ReplaceFile, HoldsTheNewTextOrTheOld) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "new" / "file";
  replace_file(file, "first\nof two lines");
  EXPECT_EQ(text_of(file), "first\nof two lines");
  replace_file(file, "");
  EXPECT_EQ(text_of(file), "");
  replace_file(file, "kept");
  std::filesystem::create_directory(file.string() + ".new");  // in the way
  EXPECT_THROW(replace_file(file, "lost"), Error);
  EXPECT_EQ(text_of(file), "kept");
  EXPECT_THROW(replace_file(directory.path() / "new", "a directory"), Error);
}

}  // namespace
}  // namespace lockstep
