// Files that hold what a user gives: what is wrong with one.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <utility>

namespace lockstep {

// Throws std::invalid_argument "<file>: <text>": it is not what was expected.
template <class... Args>
[[noreturn]] void reject_file(const std::filesystem::path& file, fmt::format_string<Args...> text, Args&&... args) {
  throw std::invalid_argument(file.string() + ": " + fmt::format(text, std::forward<Args>(args)...));
}

// Throws std::invalid_argument where a pipe, a device or a socket has this name: to open it could wait for ever.
void expect_no_special_file(const std::filesystem::path& path);

}  // namespace lockstep
