// The two kinds of failure: a caller's mistake is std::invalid_argument (exit code 2 from the command), everything that
// went wrong while running is lockstep::Error (exit code 1).
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/tensor_view.h"

namespace lockstep {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A link mode that the settings of NCCL, the machine or the bytes counted contradict, or that could not be proven where
// proof was asked for (exit code 3 from the command).
class LinkContradiction : public Error {
 public:
  using Error::Error;
};

// Throws std::invalid_argument with the formatted text ("op: expected ..., got ...") unless `condition` holds.
template <class... Args>
void expect(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) throw std::invalid_argument(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace lockstep

// Shapes are formatted only where a message is made, since ops check theirs at every call.
template <>
struct fmt::formatter<lockstep::Shape> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <class FormatContext>
  auto format(const lockstep::Shape& shape, FormatContext& context) const {
    const std::string text = shape.to_string();
    return std::copy(text.begin(), text.end(), context.out());
  }
};
