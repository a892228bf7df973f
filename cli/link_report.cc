#include "cli/link_report.h"

#include <fmt/core.h>

#include <cstdlib>

#include "cli/printable.h"

namespace lockstep::cli {
namespace {

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

std::vector<std::string> kept_settings(const LinkPolicy& policy) {
  std::vector<std::string> kept;
  for (const NcclSetting& variable : policy.variables) {
    if (variable.source == kSetByLockstep) continue;
    kept.push_back(printable(fmt::format("{}={} from {}", variable.name, variable.value, variable.source)));
  }
  return kept;
}

void print_kept_settings(const LinkPolicy& policy) {
  for (const std::string& setting : kept_settings(policy)) {
    fmt::print("link {}: {} is kept\n", link_mode_name(policy.mode), setting);
  }
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
