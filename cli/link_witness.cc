#include "cli/link_witness.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cli/nccl_log_files.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/gpu.h"
#include "framework/distributed/store.h"
#include "framework/interconnect/link_probe.h"
#include "framework/interconnect/topology.h"

namespace lockstep::cli {
namespace {

// Null where the ranks are on CPUs. Collective.
std::unique_ptr<LinkCounters> counters_of_own_gpu(ProcessGroup& group, bool pcie) {
  if constexpr (kernels::kHasCuda) {
    if (context().device() == DeviceType::cuda) {
      const std::vector<unsigned> ranks = gather_processes(group);
      const auto is_own = [ranks](unsigned pid) { return std::find(ranks.begin(), ranks.end(), pid) != ranks.end(); };
      return make_link_counters(Nvml::open(), selected_gpu().uuid, {.pcie = pcie, .is_own = is_own});
    }
  }
  return nullptr;
}

LinkProof probe(LinkMode mode, World& world) {
  const auto unproven = [mode](std::string why) {
    return LinkProof{.mode = mode, .verdict = Verdict::unproven, .reason = std::move(why)};
  };
  if (!world.environment().single_host()) return unproven("the ranks are on several hosts");
  const auto counters = counters_of_own_gpu(world.group(), /*pcie=*/true);
  if (!counters) return unproven("the ranks are on CPUs, whose bytes take no link between GPUs");
  LinkProof proof = probe_link(mode, world.group(), *counters,
                               {.nccl_avoids_nvlink = [] { return own_nccl_log().avoids_nvlink(); },
                                .conditions = probe_conditions(NcclSettings::of_process())});
  if (proof.verdict == Verdict::contradicted && mode == LinkMode::nvlink) {
    const std::string unlinked = read_topology().unlinked_pairs();
    if (!unlinked.empty()) proof.reason += "; NVLink does not join GPUs " + unlinked;
  }
  return proof;
}

}  // namespace

LinkWitness::LinkWitness(const LinkArguments& arguments, World& world)
    : group_(world.group()),
      required_(arguments.require_proof),
      probe_(cli::probe(parse_link_mode(arguments.link), world)) {
  expect_proof(probe_);
  // Only a proven probe leaves something to be seen in the training: NVLink alone, since PCIe would need a thread.
  if (probe_.verdict == Verdict::proven) counters_ = counters_of_own_gpu(group_, /*pcie=*/false);
}

void LinkWitness::begin() {
  if (counters_) counters_->start();
}

LinkProof LinkWitness::end(double wire_bytes) {
  if (!counters_) return judge_training(probe_, wire_bytes, {});
  return judge_training(probe_, wire_bytes, gather_traffic(group_, counters_->stop()));
}

void LinkWitness::expect_proof(const LinkProof& proof) const {
  const bool contradicted = proof.verdict == Verdict::contradicted;
  if (!contradicted && (proof.verdict == Verdict::proven || !required_)) return;
  // Once a rank fails the launcher ends the others, which may be writing their report.
  group_.barrier("link proof").wait();
  context().synchronize();
  // Nor does one close its connections while another still reads what it sent there.
  if (Store* const store = group_.store()) store->barrier("link proof");
  throw LinkContradiction(fmt::format("--link {}: {}: {}", link_mode_name(proof.mode),
                                      contradicted ? "contradicted" : "unproven, and --require-proof is given",
                                      proof.reason + (contradicted ? "; see lockstep topology" : "")));
}

}  // namespace lockstep::cli
