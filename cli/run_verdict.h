// Verdicts from files: on a run, on an arm of a comparison from those of its runs, and whether their bytes bear them
// out.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/interconnect/link_proof.h"

namespace lockstep::cli {

// Of a proof as to_json(LinkProof) writes it; what is none is unproven.
Verdict verdict_of(const nlohmann::ordered_json& proof);

// Of runs of lockstep measure, at least one, the worst proof: of each that of the training where the probe left one to
// be made, else the probe's. What a run does not hold is no proof.
const nlohmann::ordered_json& worst_proof(const std::vector<nlohmann::ordered_json>& runs);

// How many collectives of the emulated runs of an arm took its ranks longer than the link; 0 where they are too few to
// matter.
std::int64_t disturbing_collectives(const std::vector<nlohmann::ordered_json>& runs);

// What speaks against the proven probe of a link between so many ranks in the file itself, judged again from the bytes
// that its GPUs counted; empty where nothing does. NCCL's own word and settings, which no file holds, and bytes of PCIe
// that could not be read count in favour of it.
std::string refutation_of_probe(const nlohmann::ordered_json& probe, const std::string& link, int ranks);

// The same for a proven run of lockstep measure: for its probe and its training.
std::string refutation_of_run(const nlohmann::ordered_json& run, const std::string& link, int ranks);

}  // namespace lockstep::cli
