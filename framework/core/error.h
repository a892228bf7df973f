// The two kinds of failure: a caller's mistake is std::invalid_argument (exit code 2 from the command), everything that
// went wrong while running is lockstep::Error (exit code 1).
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <utility>

namespace lockstep {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws std::invalid_argument with the formatted text ("op: expected ..., got ...") unless `condition` holds.
template <class... Args>
void expect(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) throw std::invalid_argument(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace lockstep
