#include "framework/core/nearest_name.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <stdexcept>

namespace lockstep {
namespace {

// Levenshtein's distance, one row of the table at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  std::string nearest;
  std::size_t fewest = std::max<std::size_t>(2, name.size() / 2) + 1;  // more edits than this is another word
  for (const std::string& candidate : candidates) {
    const std::size_t edits = edit_distance(name, candidate);
    if (edits < fewest) {
      fewest = edits;
      nearest = candidate;
    }
  }
  return nearest;
}

void expect_known(std::string_view what, std::string_view name, const std::vector<std::string>& candidates) {
  if (std::find(candidates.begin(), candidates.end(), name) != candidates.end()) return;
  const std::string nearest = nearest_name(name, candidates);
  throw std::invalid_argument(fmt::format("unknown {} '{}': expected {}{}", what, name, fmt::join(candidates, ", "),
                                          nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
}

}  // namespace lockstep
