#include "cli/link_option.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "cli/nccl_log_files.h"
#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/gpu.h"
#include "framework/distributed/environment.h"
#include "framework/interconnect/link_probe.h"
#include "framework/interconnect/topology.h"

namespace lockstep::cli {
namespace {

// This rank's.
std::optional<NcclLogFiles>& own_nccl_log() {
  static std::optional<NcclLogFiles> log;
  return log;
}

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
  LinkProof proof =
      probe_link(mode, world.group(), *counters,
                 {.nccl_avoids_nvlink = [] { return own_nccl_log() && own_nccl_log()->read().avoids_nvlink(); }});
  if (proof.verdict == Verdict::contradicted && mode == LinkMode::nvlink) {
    const std::string unlinked = read_topology().unlinked_pairs();
    if (!unlinked.empty()) proof.reason += "; NVLink does not join GPUs " + unlinked;
  }
  return proof;
}

std::string describe(const ByteCount& sent, const ByteCount& received) {
  if (!sent || !received) return sent ? received.why_not : sent.why_not;
  return fmt::format("{:.2f} GB out, {:.2f} GB in", static_cast<double>(*sent) / 1e9,
                     static_cast<double>(*received) / 1e9);
}

nlohmann::ordered_json to_json(const ByteCount& count) {
  if (count) return *count;
  return {{"not", count.why_not}};
}

}  // namespace

LinkPolicy switch_link(const LinkArguments& arguments) {
  LinkPolicy policy = apply_link_mode(parse_link_mode(arguments.link));
  if (kernels::kHasCuda && detect_environment().launcher != Launcher::none) {
    own_nccl_log().emplace(NcclLogFiles::Of::this_process);
  }
  return policy;
}

void print_kept_settings(const LinkPolicy& policy) {
  for (const NcclSetting& variable : policy.variables) {
    if (variable.source == kSetByLockstep) continue;
    fmt::print("link {}: {}={} from {} is kept\n", link_mode_name(policy.mode), variable.name, variable.value,
               variable.source);
  }
}

bool says_link(const LinkArguments& arguments) {
  return context().device() == DeviceType::cuda || parse_link_mode(arguments.link) != LinkMode::automatic;
}

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
  throw LinkContradiction(fmt::format("--link {}: {}: {}", link_mode_name(proof.mode),
                                      contradicted ? "contradicted" : "unproven, and --require-proof is given",
                                      proof.reason + (contradicted ? "; see lockstep topology" : "")));
}

std::string describe(const LinkPolicy& policy, const LinkProof& proof) {
  std::string nvls = "off";
  for (const NcclSetting& variable : policy.variables) {
    if (variable.name == "NCCL_NVLS_ENABLE" && std::strtol(variable.value.c_str(), nullptr, 0) != 0) nvls = "allowed";
  }
  return fmt::format("link {} ({}), NVLS {}: {}: {}", link_mode_name(policy.mode), policy.description, nvls,
                     verdict_name(proof.verdict), proof.reason);
}

std::string describe(const LinkTraffic& traffic) {
  return fmt::format("{}: NVLink {}; PCIe {}", traffic.gpu, describe(traffic.nvlink_sent, traffic.nvlink_received),
                     describe(traffic.pcie_sent, traffic.pcie_received));
}

nlohmann::ordered_json to_json(const LinkPolicy& policy) {
  nlohmann::ordered_json json{{"mode", link_mode_name(policy.mode)}, {"description", policy.description}};
  for (const NcclSetting& variable : policy.variables) {
    json["variables"][variable.name] = variable.value;
    json["sources"][variable.name] = variable.source;
  }
  return json;
}

nlohmann::ordered_json to_json(const LinkProof& proof) {
  nlohmann::ordered_json json{{"mode", link_mode_name(proof.mode)},
                              {"verdict", verdict_name(proof.verdict)},
                              {"reason", proof.reason},
                              {"over_nvlink", proof.over_nvlink},
                              {"expected_bytes", proof.expected_bytes}};
  json["gpus"] = nlohmann::ordered_json::array();
  for (const LinkTraffic& traffic : proof.gpus) {
    json["gpus"].push_back({{"gpu", traffic.gpu},
                            {"nvlink_sent_bytes", to_json(traffic.nvlink_sent)},
                            {"nvlink_received_bytes", to_json(traffic.nvlink_received)},
                            {"pcie_sent_bytes", to_json(traffic.pcie_sent)},
                            {"pcie_received_bytes", to_json(traffic.pcie_received)},
                            {"nvlink_active", traffic.nvlink_active},
                            {"disturbance", traffic.disturbance}});
  }
  return json;
}

}  // namespace lockstep::cli
