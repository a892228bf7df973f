// A topology in the files that commands write and read.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "framework/interconnect/topology.h"

namespace lockstep::cli {

// "fault", "warning", "note"
const char* kind_name(TopologyFinding::Kind kind);

// "0-1: NVLink through NVSwitch, 18 of 18 links: 450 GB/s in each direction at most, about 396 expected; peer access"
std::string describe_pair(const GpuPair& pair);

nlohmann::ordered_json to_json(const Topology& topology);
// What is missing keeps its default.
Topology topology_of(const nlohmann::ordered_json& json);

}  // namespace lockstep::cli
