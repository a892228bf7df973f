// The verdict on an arm of a comparison, from the files of its runs.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace lockstep::cli {

// Of runs of lockstep measure, at least one, the worst proof: of each that of the training where the probe left one to
// be made, else the probe's. What a run does not hold is no proof.
const nlohmann::ordered_json& worst_proof(const std::vector<nlohmann::ordered_json>& runs);

}  // namespace lockstep::cli
