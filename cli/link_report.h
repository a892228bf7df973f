// What commands print and write of a link: the switch and its proof.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/interconnect/link_policy.h"
#include "framework/interconnect/link_proof.h"

namespace lockstep::cli {

// The settings of the user that the mode keeps: "NCCL_P2P_LEVEL=SYS from /etc/nccl.conf"
std::vector<std::string> kept_settings(const LinkPolicy& policy);
// The same, one a line; for the process that starts the ranks, or rank 0.
void print_kept_settings(const LinkPolicy& policy);

// "link pcie (staged through ...), NVLS off: proven: rank 0: NVLink carried ..."
std::string describe(const LinkPolicy& policy, const LinkProof& proof);

// "GPU 0: NVLink 1.07 GB out, 1.07 GB in; PCIe not permitted"
std::string describe(const LinkTraffic& traffic);

nlohmann::ordered_json to_json(const LinkPolicy& policy);
nlohmann::ordered_json to_json(const LinkProof& proof);

}  // namespace lockstep::cli
