#include "cli/list_option.h"

#include <charconv>
#include <sstream>

#include "framework/core/error.h"

namespace lockstep::cli {

std::vector<std::string> split_list(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

std::vector<std::int64_t> whole_numbers(const std::string& option, const std::string& list) {
  std::vector<std::int64_t> numbers;
  for (const std::string& part : split_list(list)) {
    std::int64_t number = 0;
    const char* const end = part.data() + part.size();
    const auto [stop, failure] = std::from_chars(part.data(), end, number);
    expect(failure == std::errc{} && stop == end && number >= 1 && number <= INT32_MAX,
           "{}: expected numbers such as 1,2,4, got '{}'", option, list);
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace lockstep::cli
