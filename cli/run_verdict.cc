#include "cli/run_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "cli/json_value.h"

namespace lockstep::cli {
namespace {

const Json& proof_of(const Json& run) {
  const Json& probe = entry_of(run, "probe");
  return verdict_of(probe) == Verdict::proven ? entry_of(run, "training") : probe;
}

ByteCount byte_count_of(const Json& gpu, const char* key) {
  const Json& count = entry_of(gpu, key);
  if (!count.is_number()) return {.value = std::nullopt, .why_not = value_of<std::string>(count, "not", "not counted")};
  return {.value = static_cast<std::uint64_t>(read_value<double>(count, key, measured_range<double>())), .why_not = {}};
}

std::vector<LinkTraffic> traffic_of(const Json& proof) {
  std::vector<LinkTraffic> gpus;
  for (const Json& gpu : elements_of(proof, "gpus")) {
    gpus.push_back({.gpu = value_of<std::string>(gpu, "gpu", fmt::format("rank {}", gpus.size())),
                    .nvlink_sent = byte_count_of(gpu, "nvlink_sent_bytes"),
                    .nvlink_received = byte_count_of(gpu, "nvlink_received_bytes"),
                    .pcie_sent = byte_count_of(gpu, "pcie_sent_bytes"),
                    .pcie_received = byte_count_of(gpu, "pcie_received_bytes"),
                    .nvlink_active = value_of<bool>(gpu, "nvlink_active", true),
                    .disturbance = value_of<std::string>(gpu, "disturbance"),
                    .nccl_avoids_nvlink = true});  // files do not hold NCCL's word, without which less is proven
  }
  return gpus;
}

LinkProof judge_probe_again(const Json& probe, LinkMode mode) {
  // Nor whether NCCL_PROTO let flags go beside the data: more bytes are proven with them than without.
  return judge_probe(mode, value_of<double>(probe, "expected_bytes"), traffic_of(probe),
                     {.other_amounts = {}, .flagged = "NCCL_PROTO"});
}

// `judge` gives the proof that the bytes make in a mode.
template <class Judge>
std::string refutation_of(const Json& proof, const std::string& link, int ranks, Judge judge) {
  const auto named = value_of<std::string>(proof, "mode", link);
  if (named != link) return fmt::format("it was measured in link mode {}", named);
  const std::size_t gpus = elements_of(proof, "gpus").size();
  if (std::cmp_less(gpus, ranks)) return fmt::format("it has the bytes of {} GPUs for {} ranks", gpus, ranks);
  if (value_of<double>(proof, "expected_bytes") <= 0) return "it does not say how many bytes there were to carry";
  for (const LinkMode mode : {LinkMode::automatic, LinkMode::nvlink, LinkMode::pcie, LinkMode::net}) {
    if (link != link_mode_name(mode)) continue;
    const LinkProof judged = judge(mode);
    if (judged.verdict != Verdict::proven) return judged.reason;
    const auto claimed = value_if<bool>(proof, "over_nvlink");
    if (!claimed) return "it does not say whether the bytes took NVLink";
    if (judged.over_nvlink == *claimed) return {};
    return fmt::format("it says that the bytes {} NVLink, but {}", judged.over_nvlink ? "did not take" : "took",
                       judged.reason);
  }
  return fmt::format("{} is no link mode", link);
}

}  // namespace

Verdict verdict_of(const Json& proof) {
  return parse_verdict(value_of<std::string>(proof, "verdict")).value_or(Verdict::unproven);
}

const Json& worst_proof(const std::vector<Json>& runs) {
  return proof_of(*std::max_element(runs.begin(), runs.end(), [](const Json& a, const Json& b) {
    return verdict_of(proof_of(a)) < verdict_of(proof_of(b));
  }));
}

std::int64_t disturbing_collectives(const std::vector<Json>& runs) {
  constexpr double kMany = 0.1;  // of all: above that the figures are no good
  double all = 0;
  std::int64_t late = 0;
  for (const Json& run : runs) {
    all += static_cast<double>(elements_of(run, "step_ms").size() * (1 + elements_of(run, "all_reduces").size()));
    late += value_of<std::int64_t>(run, "late");
  }
  return static_cast<double>(late) > kMany * all ? late : 0;
}

std::string refutation_of_probe(const Json& probe, const std::string& link, int ranks) {
  return refutation_of(probe, link, ranks, [&](LinkMode mode) { return judge_probe_again(probe, mode); });
}

std::string refutation_of_run(const Json& run, const std::string& link, int ranks) {
  const Json& probe = entry_of(run, "probe");
  if (std::string why = refutation_of_probe(probe, link, ranks); !why.empty()) return "probe: " + why;
  const Json& training = entry_of(run, "training");
  const std::string why = refutation_of(training, link, ranks, [&](LinkMode mode) {
    return judge_training(judge_probe_again(probe, mode), value_of<double>(training, "expected_bytes"),
                          traffic_of(training));
  });
  return why.empty() ? why : "training: " + why;
}

}  // namespace lockstep::cli
