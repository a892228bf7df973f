// Verdicts from files: on a run, and on an arm of a comparison from those of its runs.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "framework/interconnect/link_proof.h"

namespace lockstep::cli {

// Of a proof as to_json(LinkProof) writes it; what is none is unproven.
Verdict verdict_of(const nlohmann::ordered_json& proof);

// Of runs of lockstep measure, at least one, the worst proof: of each that of the training where the probe left one to
// be made, else the probe's. What a run does not hold is no proof.
const nlohmann::ordered_json& worst_proof(const std::vector<nlohmann::ordered_json>& runs);

}  // namespace lockstep::cli
