// Text in tests: of files, and what it holds.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace lockstep::testing {

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The bytes of a file; empty where it cannot be read.
inline std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace lockstep::testing

// contains(), with both in the message.
#define EXPECT_CONTAINS(text, part) EXPECT_PRED2(::lockstep::testing::contains, text, part)
