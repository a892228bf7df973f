// For messages: which known name somebody probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The candidate with the fewest edits (insertions, deletions, replacements) to `name`; empty where none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// Throws std::invalid_argument ("unknown model 'lenot': expected lenet or mlp; did you mean lenet?") unless `name` is
// one of the candidates.
void expect_known(std::string_view what, std::string_view name, const std::vector<std::string>& candidates);

}  // namespace lockstep
