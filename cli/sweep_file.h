// Cost models from what `lockstep all-reduce --json` wrote.
#pragma once

#include <nlohmann/json.hpp>

#include "framework/interconnect/cost_model.h"

namespace lockstep::cli {

// Fits the times in place, as gradients are reduced. Those of an emulated link are the link's own. Throws
// std::invalid_argument where the file is none of that command's or holds too few sizes.
CostModel model_of_sweep(const nlohmann::ordered_json& sweep);

nlohmann::ordered_json model_json(const CostModel& model);

}  // namespace lockstep::cli
