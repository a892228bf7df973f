// What NCCL itself writes of its connections (NCCL_DEBUG=INFO): evidence of how bytes travel that counters do not tell
// apart, host memory or the network. A P2P line never says NVLink or PCIe.
#pragma once

#include <istream>
#include <string>

#include "framework/interconnect/link_policy.h"

namespace lockstep {

struct NcclLog {
  std::string version;  // "2.28.9+cuda13.0"; empty where no line tells
  // Connections of channels by transport.
  int p2p = 0;
  int shm = 0;
  int net = 0;
  std::string net_name;   // "Socket", "IB"
  int nvls_channels = 0;  // the most of any communicator

  // Adds what `log` says. Lines that are not NCCL's, or broken, say nothing.
  void read(std::istream& log);
  bool empty() const { return p2p + shm + net == 0; }
  // All its connections are of kinds that cannot take NVLink.
  bool avoids_nvlink() const { return !empty() && p2p == 0 && nvls_channels == 0; }
  // "P2P 32, SHM 0, NET 0 connections; 0 NVLS channels"
  std::string to_string() const;
};

// In what the log speaks against `policy`; empty where it does not.
std::string contradiction(const LinkPolicy& policy, const NcclLog& log);

}  // namespace lockstep
