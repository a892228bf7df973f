// Whether the bytes took the link that a mode names: a verdict from what the GPUs' counters say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/distributed/nccl_settings.h"
#include "framework/interconnect/link_counters.h"
#include "framework/interconnect/link_policy.h"

namespace lockstep {

// From the best to the worst.
enum class Verdict : std::uint8_t { proven, unproven, contradicted };

// "proven", "unproven", "contradicted"
const char* verdict_name(Verdict verdict);
// None for another text.
std::optional<Verdict> parse_verdict(std::string_view name);
constexpr Verdict worse_of(Verdict a, Verdict b) { return a < b ? b : a; }

struct LinkProof {
  LinkMode mode = LinkMode::automatic;
  Verdict verdict = Verdict::unproven;
  bool over_nvlink = false;       // where proven: whether NVLink carried the bytes
  std::string reason;             // one sentence, for a person
  double expected_bytes = 0.0;    // that each GPU sends, and receives, over whatever link; 0: not known
  std::vector<LinkTraffic> gpus;  // of each rank's; for a program those that it sees
};

// What each of n ranks sends, and receives, in an all-reduce of `bytes` by a ring: 2 (n - 1) / n of them.
double all_reduce_wire_bytes(double bytes, int ranks);

// What the user's settings let NCCL send where it would choose a ring and send each byte once.
struct ProbeConditions {
  std::string other_amounts;  // "NCCL_ALGO=Tree": fewer bytes from some GPUs, and more from others; empty: a ring
  std::string flagged;        // "NCCL_PROTO=LL": up to 2.05 times as many, with flags beside the data; empty: none
};
ProbeConditions probe_conditions(const NcclSettings& settings);

// For all-reduces of large buffers and nothing else between the readings. nvlink: each GPU's NVLink bytes are within 2
// % of `wire_bytes`. pcie, net: at most 1 %; a counter that stands still could be one that never moves, and takes
// NCCL's own word (LinkTraffic::nccl_avoids_nvlink) or nine tenths of the bytes seen on PCIe besides. The bytes of PCIe
// contradict where they tell another story: half of `wire_bytes` beside NVLink's, or less than half in both directions
// without it (but for a still counter with NCCL's word: unproven). automatic is never contradicted. Unproven: another
// process on a GPU, a counter that cannot be read, went back or counted more than there was; under `conditions` other
// amounts are unproven too, and flags are allowed for.
LinkProof judge_probe(LinkMode mode, double wire_bytes, std::vector<LinkTraffic> ranks,
                      const ProbeConditions& conditions = {});

// For a training whose buckets make `wire_bytes` a rank, by NVLink counters alone, summed over the ranks. nvlink: 1.00
// to 2.05 times as many (protocols with flags send more), contradicted below 0.98 and unproven between; pcie, net: at
// most 1 %. Unproven also where it moved less than 64 MiB, and where `probe` proved nothing: only a probe shows that
// the counters work.
LinkProof judge_training(const LinkProof& probe, double wire_bytes, std::vector<LinkTraffic> ranks);

// For a program of which nobody knows how many bytes it had to move, by the sums over the GPUs; where PCIe was not
// counted without gaps, by the least and the most that it can have carried. pcie, net: contradicted where NVLink
// carried more than 1 % of what NVLink and PCIe carried together; proven where it carried less, and less than 16 MiB.
// nvlink: proven where NVLink carried more than PCIe; contradicted where it carried next to nothing and NCCL's own word
// is that it avoids it: PCIe also carries what the program reads. Unproven also where it moved less than 64 MiB, and
// for pcie and net where the NVLink counters stand still without NCCL's word (LinkTraffic::nccl_avoids_nvlink); with it
// no bytes need to have moved.
LinkProof judge_program(LinkMode mode, std::vector<LinkTraffic> gpus);

}  // namespace lockstep
