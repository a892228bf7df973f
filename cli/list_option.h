// Options that take several values, such as --ranks 1,2,4.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::cli {

std::vector<std::string> split_list(const std::string& list);

// Whole numbers of at least 1; none for an empty list. Throws std::invalid_argument, naming `option`, for anything
// else.
std::vector<std::int64_t> whole_numbers(const std::string& option, const std::string& list);

}  // namespace lockstep::cli
