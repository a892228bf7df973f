#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "framework/interconnect/claims.h"

namespace lockstep {
namespace {

using Rule = ClaimAnswer (*)(const ClaimEvidence& evidence);

constexpr double kPcie3x16 = 15.75;  // GB/s in one direction
constexpr const char* kNotCompared = "no training was compared over NVLink and staged";

ClaimAnswer reproduced(std::string reason) {
  return {.verdict = ClaimVerdict::reproduced, .reason = std::move(reason)};
}
ClaimAnswer not_reproduced(std::string reason) {
  return {.verdict = ClaimVerdict::not_reproduced, .reason = std::move(reason)};
}
ClaimAnswer not_measurable(std::string reason) { return {.reason = std::move(reason)}; }

bool near(double value, double claimed, double share) { return std::abs(value - claimed) <= share * claimed; }

const GpuNode* linked_gpu(const Topology& topology) {
  const auto gpu = std::find_if(topology.gpus.begin(), topology.gpus.end(),
                                [](const GpuNode& node) { return node.active_nvlinks > 0; });
  return gpu == topology.gpus.end() ? nullptr : &*gpu;
}

std::string why_no_links(const Topology& topology) {
  if (topology.gpus.empty()) return "there is no GPU";
  if (topology.gpus.size() == 1) return "the GPU has no active NVLink";
  return fmt::format("none of the {} GPUs has an active NVLink", topology.gpus.size());
}

double nvlink_rate(const GpuNode& gpu) { return gpu.active_nvlinks * gpu.nvlink_gb_s; }

std::string describe_rates(const ClaimEvidence& evidence) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (const GpuNode* gpu = linked_gpu(evidence.topology); gpu != nullptr) {
    add(fmt::format("NVLink {} x {:.4g} = {:.4g} GB/s in one direction", gpu->active_nvlinks, gpu->nvlink_gb_s,
                    nvlink_rate(*gpu)));
    add(fmt::format("PCIe {} x{} = {:.4g} GB/s", gpu->pcie_most.generation, gpu->pcie_most.width,
                    gpu->pcie_most.peak_gb_s()));
  }
  if (evidence.nvlink) add(fmt::format("all-reduce over NVLink {:.4g} GB/s (busbw)", evidence.nvlink->large_busbw));
  if (evidence.staged) add(fmt::format("staged {:.4g} GB/s", evidence.staged->large_busbw));
  return text;
}

// Rates are what the driver reads from the links; that bytes pass at such a rate takes a sweep, which reaches at least
// half of it.
ClaimAnswer as_claimed(const ClaimEvidence& evidence, double claimed, const std::string& reason) {
  if (!evidence.nvlink) return not_measurable("the rates are as claimed, but no all-reduce was run over NVLink");
  if (evidence.nvlink->large_busbw >= claimed / 2) return reproduced(reason);
  return not_reproduced(fmt::format("{}, but all-reduces reach {:.4g} GB/s", reason, evidence.nvlink->large_busbw));
}

ClaimAnswer bandwidth_256(const ClaimEvidence& evidence) {
  const GpuNode* gpu = linked_gpu(evidence.topology);
  if (gpu == nullptr) return not_measurable(why_no_links(evidence.topology));
  const double rate = nvlink_rate(*gpu);
  if (rate <= 0) return not_measurable("the driver does not tell the rate of the links");
  const double times = rate / kPcie3x16;
  const bool is_256 = near(rate, 256, 0.1) || near(2 * rate, 256, 0.1);
  const bool is_five = near(times, 5, 0.1);
  const std::string reason =
      fmt::format("{:.4g} GB/s in one direction and {:.4g} in both {} 256; {:.3g} times PCIe 3.0 x16 {} 5", rate,
                  2 * rate, is_256 ? "include" : "are not", times, is_five ? "are" : "are not");
  return is_256 && is_five ? as_claimed(evidence, rate, reason) : not_reproduced(reason);
}

ClaimAnswer latency_tenth(const ClaimEvidence& evidence) {
  if (!evidence.nvlink || !evidence.staged) return not_measurable("small all-reduces were not timed over both links");
  const double times = evidence.staged->small_us / evidence.nvlink->small_us;
  if (times >= 8) {
    return not_measurable(fmt::format(
        "small all-reduces take {:.3g} times as long staged, but 100 ns cannot be seen beside their launch", times));
  }
  return not_reproduced(fmt::format("small all-reduces take {:.2g} times as long staged, not 10", times));
}

ClaimAnswer lanes_64(const ClaimEvidence& evidence) {
  const GpuNode* gpu = linked_gpu(evidence.topology);
  if (gpu == nullptr) return not_measurable(why_no_links(evidence.topology));
  constexpr int kLanesOfLink[] = {0, 8, 8, 4, 2, 2};  // in one direction, by generation
  const int generation = gpu->nvlink_generation;
  if (generation < 1 || generation >= static_cast<int>(std::size(kLanesOfLink))) {
    return not_measurable("the lanes of this generation of NVLink are not known");
  }
  const int lanes = gpu->active_nvlinks * kLanesOfLink[generation];
  const std::string reason = fmt::format("{} links of {} lanes are {} in one direction, beside {} of PCIe",
                                         gpu->active_nvlinks, kLanesOfLink[generation], lanes, gpu->pcie_most.width);
  return lanes == 64 && gpu->pcie_most.width == 16 ? reproduced(reason) : not_reproduced(reason);
}

ClaimAnswer bandwidth_300(const ClaimEvidence& evidence) {
  const GpuNode* gpu = linked_gpu(evidence.topology);
  if (gpu == nullptr) return not_measurable(why_no_links(evidence.topology));
  const double rate = nvlink_rate(*gpu);
  const double pcie = gpu->pcie_most.peak_gb_s();
  if (rate <= 0 || pcie <= 0) return not_measurable("the driver does not tell the rate of both links");
  const std::string reason =
      fmt::format("{:.4g} beside {:.4g} GB/s in one direction, {:.3g} times", rate, pcie, rate / pcie);
  if (near(rate, 300, 0.1) && near(pcie, 16, 0.1)) return as_claimed(evidence, 300, reason);
  return not_reproduced(near(2 * rate, 300, 0.1) ? reason + "; 300 are both directions" : reason);
}

ClaimAnswer training_2_5(const ClaimEvidence& evidence) {
  std::vector<std::string> fast;
  std::vector<std::string> other;
  std::vector<std::string> unproven;
  for (const ComparedTraining& training : evidence.trainings) {
    if (!training.proven) {
      unproven.push_back(training.what);
    } else {
      (training.speedup.low >= 2 ? fast : other)
          .push_back(fmt::format("{} {:.2f}x", training.what, training.speedup.value));
    }
  }
  if (other.empty() && !unproven.empty()) {
    return not_measurable(fmt::format("which link carried the bytes was not proven for {}", fmt::join(unproven, ", ")));
  }
  if (other.empty() && fast.empty()) return not_measurable(kNotCompared);
  if (other.empty()) return reproduced(fmt::format("for {}, beside staging", fmt::join(fast, ", ")));
  return not_reproduced(fast.empty()
                            ? fmt::format("{}", fmt::join(other, ", "))
                            : fmt::format("not in general: {}, but {}", fmt::join(fast, ", "), fmt::join(other, ", ")));
}

ClaimAnswer needs_v100(const ClaimEvidence& evidence) {
  constexpr int kVolta = 70;
  for (const GpuNode& gpu : evidence.topology.gpus) {
    if (gpu.active_nvlinks > 0 && gpu.compute_capability > 0 && gpu.compute_capability < kVolta) {
      return not_reproduced(fmt::format("{} is older and has {} active NVLinks", gpu.name, gpu.active_nvlinks));
    }
  }
  return not_measurable(evidence.topology.gpus.empty() ? "there is no GPU" : "there is no older GPU with NVLink here");
}

ClaimAnswer device_names(const ClaimEvidence& evidence) {
  const std::vector<GpuNode>& gpus = evidence.topology.gpus;
  for (const GpuNode& gpu : gpus) {
    const auto twin = std::find_if(gpus.begin(), gpus.end(), [&](const GpuNode& other) {
      return other.name == gpu.name && other.active_nvlinks != gpu.active_nvlinks;
    });
    if (twin != gpus.end()) {
      return not_reproduced(fmt::format("two GPUs are called {}, with {} and {} active NVLinks", gpu.name,
                                        gpu.active_nvlinks, twin->active_nvlinks));
    }
    if (gpu.nvlinks > 0 && gpu.active_nvlinks == 0) {
      return not_reproduced(fmt::format("{} has {} NVLinks by its kind, and none is active", gpu.name, gpu.nvlinks));
    }
  }
  return not_measurable(gpus.empty() ? "there is no GPU" : "GPUs of one name have the same links here");
}

ClaimAnswer joins_cpus(const ClaimEvidence& evidence) {
  const Topology& topology = evidence.topology;
  if (linked_gpu(topology) == nullptr) return not_measurable(why_no_links(topology));
  for (const GpuNode& gpu : topology.gpus) {
    if (gpu.cpu_nvlinks > 0) {
      return reproduced(fmt::format("{} of {} links of {} end at a processor", gpu.cpu_nvlinks, gpu.nvlinks, gpu.name));
    }
  }
  if (!topology.virtual_machine.empty()) return not_measurable("a virtual machine hides where the links end");
  return not_reproduced("no link ends at a processor");
}

// Settings of the user or a file that could be why NCCL takes NVLink.
std::string peer_settings(const Topology& topology) {
  std::string names;
  for (const NcclSetting& setting : topology.nccl_settings) {
    if (setting.name.rfind("NCCL_P2P_", 0) == 0) names += (names.empty() ? "" : ", ") + setting.name;
  }
  return names;
}

constexpr const char* kNoneByItself =
    "no bytes were counted on NVLink in mode auto (lockstep compare --links auto,pcie)";

ClaimAnswer driver_alone(const ClaimEvidence& evidence) {
  const Topology& topology = evidence.topology;
  for (const TopologyFinding& finding : topology.findings) {
    if (finding.kind == TopologyFinding::Kind::fault && !topology.gpus.empty()) return not_reproduced(finding.what);
  }
  if (linked_gpu(topology) == nullptr) return not_measurable(why_no_links(topology));
  if (!evidence.nvlink_by_itself) return not_measurable("the links are active, but " + std::string(kNoneByItself));
  if (const std::string set = peer_settings(topology); !set.empty()) return not_measurable(set + " was set");
  return reproduced("all links are active, and NCCL's bytes took them with no setting for it");
}

ClaimAnswer frameworks_configured(const ClaimEvidence& evidence) {
  if (!evidence.nvlink_by_itself) {
    return not_measurable(linked_gpu(evidence.topology) == nullptr ? why_no_links(evidence.topology) : kNoneByItself);
  }
  if (const std::string set = peer_settings(evidence.topology); !set.empty()) return not_measurable(set + " was set");
  return not_reproduced("NCCL's bytes took NVLink with no setting for it");
}

ClaimAnswer mainboard(const ClaimEvidence& evidence) {
  for (const GpuPair& pair : evidence.topology.pairs) {
    if (pair.path == GpuPath::nvswitch) {
      return not_measurable(
          "the links end at NVSwitches, which sit on the GPUs' own board; a bridge is not here to be seen");
    }
    if (pair.path == GpuPath::nvlink) {
      return not_measurable("the driver does not tell whether a board or a bridge carries the links");
    }
  }
  return not_measurable(why_no_links(evidence.topology));
}

ClaimAnswer larger_models(const ClaimEvidence& evidence) {
  for (const ComparedTraining& training : evidence.trainings) {
    if (training.nvlink_gradient_bytes == 0 || training.staged_gradient_bytes == 0) continue;
    const bool less = training.nvlink_gradient_bytes < training.staged_gradient_bytes;
    const std::string reason = fmt::format("each GPU holds {:.4g} MB of gradients of {} over NVLink, {:.4g} staged",
                                           static_cast<double>(training.nvlink_gradient_bytes) / 1e6, training.what,
                                           static_cast<double>(training.staged_gradient_bytes) / 1e6);
    return less ? reproduced(reason) : not_reproduced(reason);
  }
  return not_measurable(kNotCompared);
}

ClaimAnswer data_parallel(const ClaimEvidence&) {
  return not_measurable("this is no PyTorch; lockstep with-link nvlink -- torchrun ... counts its bytes");
}

ClaimAnswer graphics(const ClaimEvidence&) { return not_measurable("nothing is drawn here"); }

std::string no_figures(const ClaimEvidence&) { return {}; }

std::string small_messages(const ClaimEvidence& evidence) {
  if (!evidence.nvlink || !evidence.staged) return {};
  return fmt::format("an all-reduce of {} bytes takes {:.3g} us over NVLink, {:.3g} us staged",
                     evidence.nvlink->small_bytes, evidence.nvlink->small_us, evidence.staged->small_us);
}

std::string speedups(const ClaimEvidence& evidence) {
  std::vector<std::string> texts;
  for (const ComparedTraining& training : evidence.trainings) {
    texts.push_back(fmt::format("{}: {:.2f}x ({:.2f} to {:.2f}), {}", training.what, training.speedup.value,
                                training.speedup.low, training.speedup.high, training.proven ? "proven" : "unproven"));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::string gpu_kinds(const ClaimEvidence& evidence) {
  std::vector<std::string> texts;
  for (const GpuNode& gpu : evidence.topology.gpus) {
    std::string text = fmt::format("{}: {} of {} NVLinks active", gpu.name, gpu.active_nvlinks, gpu.nvlinks);
    if (gpu.compute_capability > 0) {
      text += fmt::format(", compute capability {}.{}", gpu.compute_capability / 10, gpu.compute_capability % 10);
    }
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(std::move(text));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::string link_ends(const ClaimEvidence& evidence) {
  std::vector<std::string> texts;
  for (const GpuPair& pair : evidence.topology.pairs) {
    std::string text = gpu_path_name(pair.path);
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(std::move(text));
  }
  return texts.empty() ? "" : fmt::format("between GPUs: {}", fmt::join(texts, ", "));
}

struct Answering {
  std::string_view claim;
  Rule rule;
  std::string (*measured)(const ClaimEvidence& evidence);
};

constexpr Answering kAnswers[] = {
    {"bandwidth-256", bandwidth_256, describe_rates},
    {"latency-tenth", latency_tenth, small_messages},
    {"lanes-64", lanes_64, gpu_kinds},
    {"bandwidth-300", bandwidth_300, describe_rates},
    {"training-2-5", training_2_5, speedups},
    {"needs-v100", needs_v100, gpu_kinds},
    {"device-names", device_names, gpu_kinds},
    {"joins-cpus", joins_cpus, link_ends},
    {"driver-alone", driver_alone, gpu_kinds},
    {"frameworks-configured", frameworks_configured, no_figures},
    {"mainboard", mainboard, link_ends},
    {"larger-models", larger_models, no_figures},
    {"data-parallel", data_parallel, no_figures},
    {"graphics", graphics, no_figures},
};

}  // namespace

std::vector<ClaimAnswer> answer_claims(const ClaimEvidence& evidence) {
  std::vector<ClaimAnswer> answers;
  for (const Claim& claim : claims()) {
    const auto found = std::find_if(std::begin(kAnswers), std::end(kAnswers),
                                    [&](const Answering& answering) { return answering.claim == claim.name; });
    ClaimAnswer answer = found->rule(evidence);
    answer.claim = &claim;
    answer.measured = found->measured(evidence);
    if (evidence.emulated) {
      answer.verdict = ClaimVerdict::emulated;
      answer.reason = fmt::format(
          "CPU ranks on a link that is not there, in slow motion by a factor of {:g}, show nothing of a real one",
          evidence.slow_motion);
    }
    answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace lockstep
