// The switch: which link NCCL may carry bytes over, as the set of variables that make it so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/distributed/nccl_settings.h"
#include "framework/interconnect/nvlink_presence.h"

namespace lockstep {

enum class LinkMode : std::uint8_t {
  automatic,  // NCCL's choice
  nvlink,     // peer to peer
  pcie,       // NVLink off: see kStagedOverPcie
  net,        // neither NVLink nor shared memory: the network, also within a host
};

// "auto", "nvlink", "pcie", "net"
const char* link_mode_name(LinkMode mode);
// Throws std::invalid_argument for another name.
LinkMode parse_link_mode(std::string_view name);

// What pcie is on GPUs joined by NVLink: there, no setting of NCCL selects PCIe peer-to-peer.
inline constexpr const char* kStagedOverPcie = "staged through host memory over PCIe (NCCL SHM), not PCIe peer-to-peer";

struct LinkPolicy {
  LinkMode mode = LinkMode::automatic;
  std::string description;             // what the mode means on this machine
  std::vector<NcclSetting> variables;  // all that it depends on, NCCL_NVLS_ENABLE always; those it sets: kSetByLockstep
};

// What `mode` needs where `settings` are in force. A value that the user or a file has set wins, also over the 0 that
// NCCL_NVLS_ENABLE (multicast by the NVLink switches) otherwise gets in every mode: left unset it would be automatic.
// Throws LinkContradiction, naming variable, place and mode, where a setting keeps NCCL from what the mode says.
LinkPolicy link_policy(LinkMode mode, NvlinkPresence nvlink, const NcclSettings& settings);
// For this process, and the GPUs of this host.
LinkPolicy link_policy(LinkMode mode);

// Sets the variables in the environment of this process, and so of those that it starts. NCCL reads each of them once,
// at its first communicator or before: call it before that, best at the start of main and while there is one thread;
// later it changes nothing, silently. For another mode start another process.
void apply(const LinkPolicy& policy);

// Both at once: apply_link_mode(LinkMode::pcie);
LinkPolicy apply_link_mode(LinkMode mode);

}  // namespace lockstep
