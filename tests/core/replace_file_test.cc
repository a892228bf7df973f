#include "framework/core/replace_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>

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
  EXPECT_THROW(replace_file(directory.path() / "new", "a directory"), Error);
  const std::filesystem::path long_name = directory.path() / std::string(255, 'x');
  replace_file(long_name, "the longest name that a file can have");
  EXPECT_EQ(text_of(long_name), "the longest name that a file can have");
  EXPECT_THROW(replace_file(directory.path() / std::string(256, 'x'), "too long"), Error);
}

TEST(ReplaceFile, LeavesNothingWhereTheDiskIsFull) {
  const TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "file";
  replace_file(file, "kept");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(replace_file(file, std::string(100'000, 'x')), Error);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(text_of(file), "kept");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

}  // namespace
}  // namespace lockstep
