// The claims about NVLink as text.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "framework/interconnect/claims.h"

namespace lockstep::cli {

// docs/claims.md: what is claimed, what is right, and what a machine must show. Says nothing of this machine.
std::string claims_page();

// For a terminal: each claim with the right statement, what was measured, and the verdict.
std::string claims_text(std::span<const ClaimAnswer> answers);

nlohmann::ordered_json claims_json(std::span<const ClaimAnswer> answers);

}  // namespace lockstep::cli
