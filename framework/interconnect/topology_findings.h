// What is wrong with a topology, and what to do about it.
#pragma once

#include <vector>

#include "framework/interconnect/topology.h"

namespace lockstep {

// From the rest of `topology`. driver_loaded: the kernel has the driver, so that GPUs are expected. Faults come first.
std::vector<TopologyFinding> topology_findings(const Topology& topology, bool driver_loaded);

}  // namespace lockstep
