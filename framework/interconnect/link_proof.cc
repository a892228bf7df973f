#include "framework/interconnect/link_proof.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

constexpr double kWithin = 0.02;        // NVLink's share of the bytes
constexpr double kNothing = 0.01;       // what counts as no bytes
constexpr double kMuch = 0.5;           // of the bytes: more than anything but them would make
constexpr double kAll = 0.9;            // what counts as all of them, where a count includes the protocol
constexpr double kMostOverhead = 2.05;  // protocols with flags send each byte twice
constexpr double kMib = 1024.0 * 1024.0;
constexpr double kLeastTraining = 64 * kMib;  // below, other collectives count too
constexpr double kMostStray = 16 * kMib;
// Counters in KiB, of each link, of which about four digits are known to be right.
constexpr double kRounding = 64 * 1024.0;
constexpr double kRoundingShare = 5e-4;

constexpr std::array kVerdicts{"proven", "unproven", "contradicted"};

struct Judgement {
  Verdict verdict = Verdict::unproven;
  std::string reason;
};

std::string gigabytes(double bytes) { return fmt::format("{:.2f} GB", bytes / 1e9); }

struct Extremes {
  double low, high;
};
Extremes extremes(double a, double b) { return {std::min(a, b), std::max(a, b)}; }

double number(const ByteCount& count) { return static_cast<double>(count.value_or(0)); }

// What PCIe saw of the bytes, by direction; 0 where it cannot be read.
Extremes pcie_shares(const LinkTraffic& gpu, double bytes) {
  return extremes(number(gpu.pcie_sent) / bytes, number(gpu.pcie_received) / bytes);
}

std::string shown(const ByteCount& sent, const ByteCount& received) {
  if (const ByteCount& count = sent ? received : sent; !count) return fmt::format("unknown bytes ({})", count.why_not);
  return fmt::format("{} out and {} in", gigabytes(number(sent)), gigabytes(number(received)));
}

std::string shown(const LinkTraffic& gpu, double bytes) {
  return fmt::format("NVLink carried {} of {}, PCIe {}", shown(gpu.nvlink_sent, gpu.nvlink_received), gigabytes(bytes),
                     shown(gpu.pcie_sent, gpu.pcie_received));
}

Judgement judge_nvlink(const LinkTraffic& gpu, double bytes, const ProbeConditions& conditions) {
  if (!gpu.nvlink_active) return {Verdict::contradicted, "the GPU has no active NVLink"};
  const auto [low, high] = extremes(number(gpu.nvlink_sent) / bytes, number(gpu.nvlink_received) / bytes);
  const std::string seen = shown(gpu, bytes);
  const double most = conditions.flagged.empty() ? 1 + kWithin : kMostOverhead;
  const double pcie = pcie_shares(gpu, bytes).low;
  if (low >= 1 - kWithin && high <= most) return {pcie >= kMuch ? Verdict::contradicted : Verdict::proven, seen};
  if (high == 0 && pcie < kMuch && !gpu.nccl_avoids_nvlink) {
    return {Verdict::unproven, seen + ": the NVLink counters stand still, and nothing shows that it was another link"};
  }
  if (low > kNothing && !conditions.other_amounts.empty()) {
    return {Verdict::unproven, fmt::format("{}: {} sends other amounts than a ring", seen, conditions.other_amounts)};
  }
  if (low < 1 - kWithin) return {Verdict::contradicted, seen};
  return {Verdict::unproven, seen + ": something else used it too"};
}

Judgement judge_no_nvlink(const LinkTraffic& gpu, double bytes, const ProbeConditions& conditions) {
  if (!gpu.nvlink_active) return {Verdict::proven, "the GPU has no active NVLink"};
  const double nvlink = extremes(number(gpu.nvlink_sent), number(gpu.nvlink_received)).high;
  const std::string seen = shown(gpu, bytes);
  const Extremes pcie = pcie_shares(gpu, bytes);
  if (nvlink > kNothing * bytes) return {Verdict::contradicted, seen};
  if (pcie.high > 0 && pcie.high < kMuch) {
    if (!conditions.other_amounts.empty()) {
      return {Verdict::unproven, fmt::format("{}: {} sends other amounts than a ring", seen, conditions.other_amounts)};
    }
    if (nvlink == 0 && gpu.nccl_avoids_nvlink) {
      return {Verdict::unproven, seen + ", which is too little, though by its log NCCL avoids NVLink"};
    }
    return {Verdict::contradicted, seen};
  }
  if (nvlink == 0 && pcie.low < kAll && !gpu.nccl_avoids_nvlink) {
    return {Verdict::unproven, seen + ": nothing shows that the NVLink counters would have moved"};
  }
  return {Verdict::proven, seen};
}

// Why the readings say nothing; empty where they do.
std::string unusable(const std::vector<LinkTraffic>& gpus) {
  for (const LinkTraffic& gpu : gpus) {
    if (!gpu.disturbance.empty()) return fmt::format("{}: {}", gpu.gpu, gpu.disturbance);
    for (const ByteCount* count : {&gpu.nvlink_sent, &gpu.nvlink_received}) {
      if (!*count) return fmt::format("{}: NVLink counters: {}", gpu.gpu, count->why_not);
    }
  }
  return {};
}

template <class Judge>
Judgement judge_all(const std::vector<LinkTraffic>& gpus, const Judge& judge) {
  std::optional<Judgement> worst;
  for (const LinkTraffic& gpu : gpus) {
    Judgement one = judge(gpu);
    one.reason = fmt::format("{}: {}", gpu.gpu, one.reason);
    if (!worst || one.verdict > worst->verdict) worst = std::move(one);
  }
  return *worst;
}

LinkProof proof_of(LinkMode mode, double bytes, std::vector<LinkTraffic> gpus, Judgement judgement, bool over_nvlink) {
  return {.mode = mode,
          .verdict = judgement.verdict,
          .over_nvlink = over_nvlink && judgement.verdict == Verdict::proven,
          .reason = std::move(judgement.reason),
          .expected_bytes = bytes,
          .gpus = std::move(gpus)};
}

struct Sums {
  double nvlink_sent = 0, nvlink_received = 0;
  double pcie_least = 0, pcie_most = 0;  // the same where all of it was counted
  bool nvlink_active = false;
  bool nccl_avoids_nvlink = true;

  double nvlink() const { return nvlink_sent + nvlink_received; }
};
Sums sum_up(const std::vector<LinkTraffic>& gpus) {
  Sums sums;
  for (const LinkTraffic& gpu : gpus) {
    sums.nvlink_sent += number(gpu.nvlink_sent);
    sums.nvlink_received += number(gpu.nvlink_received);
    const bool pcie_known = gpu.pcie_sent && gpu.pcie_received;
    const double pcie = number(gpu.pcie_sent) + number(gpu.pcie_received);
    sums.pcie_least += pcie_known ? pcie : gpu.pcie_least_bytes;
    sums.pcie_most += pcie_known ? pcie : gpu.pcie_most_bytes;
    sums.nccl_avoids_nvlink = sums.nccl_avoids_nvlink && gpu.nccl_avoids_nvlink;
    sums.nvlink_active = sums.nvlink_active || gpu.nvlink_active;
  }
  return sums;
}

}  // namespace

const char* verdict_name(Verdict verdict) { return kVerdicts[static_cast<std::size_t>(verdict)]; }

std::optional<Verdict> parse_verdict(std::string_view name) {
  for (std::size_t i = 0; i < kVerdicts.size(); ++i) {
    if (name == kVerdicts[i]) return static_cast<Verdict>(i);
  }
  return std::nullopt;
}

ProbeConditions probe_conditions(const NcclSettings& settings) {
  // Of a variable that is set to anything but `usual`, in whatever case NCCL takes it.
  const auto other_than = [&](const char* name, std::string_view usual) -> std::string {
    const auto setting = settings.find(name);
    if (!setting) return {};
    const auto alike = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
    const std::string& value = setting->value;
    if (std::equal(value.begin(), value.end(), usual.begin(), usual.end(), alike)) return {};
    return fmt::format("{}={}", name, value);
  };
  ProbeConditions conditions{.other_amounts = other_than("NCCL_ALGO", "ring"),
                             .flagged = other_than("NCCL_PROTO", "simple")};
  if (const NcclSetting nvls = settings.nvls(); std::strtol(nvls.value.c_str(), nullptr, 0) != 0) {
    conditions.other_amounts = "NVLS";
  }
  return conditions;
}

double all_reduce_wire_bytes(double bytes, int ranks) { return bytes * 2 * (ranks - 1) / ranks; }

LinkProof judge_probe(LinkMode mode, double wire_bytes, std::vector<LinkTraffic> ranks,
                      const ProbeConditions& conditions) {
  if (ranks.size() < 2) return proof_of(mode, 0, std::move(ranks), {Verdict::unproven, "one rank uses no link"}, false);
  if (std::string why = unusable(ranks); !why.empty()) {
    return proof_of(mode, wire_bytes, std::move(ranks), {Verdict::unproven, std::move(why)}, false);
  }
  const Judgement with =
      judge_all(ranks, [&](const LinkTraffic& gpu) { return judge_nvlink(gpu, wire_bytes, conditions); });
  const Judgement without =
      judge_all(ranks, [&](const LinkTraffic& gpu) { return judge_no_nvlink(gpu, wire_bytes, conditions); });
  switch (mode) {
    case LinkMode::nvlink:
      return proof_of(mode, wire_bytes, std::move(ranks), with, true);
    case LinkMode::pcie:
    case LinkMode::net:
      return proof_of(mode, wire_bytes, std::move(ranks), without, false);
    case LinkMode::automatic:
      break;
  }
  if (with.verdict == Verdict::proven) return proof_of(mode, wire_bytes, std::move(ranks), with, true);
  if (without.verdict == Verdict::proven) return proof_of(mode, wire_bytes, std::move(ranks), without, false);
  return proof_of(mode, wire_bytes, std::move(ranks), {Verdict::unproven, with.reason}, false);
}

LinkProof judge_training(const LinkProof& probe, double wire_bytes, std::vector<LinkTraffic> ranks) {
  const bool over_nvlink = probe.over_nvlink;
  const auto decide = [&](Verdict verdict, std::string reason) {
    if (verdict == Verdict::contradicted && probe.mode == LinkMode::automatic) verdict = Verdict::unproven;
    return proof_of(probe.mode, wire_bytes, std::move(ranks), {verdict, std::move(reason)}, over_nvlink);
  };
  if (probe.verdict != Verdict::proven) return decide(Verdict::unproven, "the probe before it: " + probe.reason);
  if (std::string why = unusable(ranks); !why.empty()) return decide(Verdict::unproven, why);
  if (wire_bytes < kLeastTraining) return decide(Verdict::unproven, "the buckets were less than 64 MiB");
  const auto count = static_cast<double>(ranks.size());
  const Sums sums = sum_up(ranks);
  const double all = count * wire_bytes;
  const auto [low, high] = extremes(sums.nvlink_sent, sums.nvlink_received);
  const std::string seen = fmt::format("over all GPUs, NVLink carried {} out and {} in of the buckets' {}",
                                       gigabytes(sums.nvlink_sent), gigabytes(sums.nvlink_received), gigabytes(all));
  if (!over_nvlink) return decide(high <= kNothing * all ? Verdict::proven : Verdict::contradicted, seen);
  if (low < (1 - kWithin) * all) return decide(Verdict::contradicted, seen);
  if (low < all - std::max(count * kRounding, kRoundingShare * all)) {
    return decide(Verdict::unproven, seen + ": a little is missing");
  }
  if (high > kMostOverhead * all) return decide(Verdict::unproven, seen + ": something else used it too");
  return decide(Verdict::proven, seen);
}

LinkProof judge_program(LinkMode mode, std::vector<LinkTraffic> gpus) {
  const Sums sums = sum_up(gpus);
  const double nvlink = sums.nvlink();
  const double least = nvlink + sums.pcie_least;
  const double most = nvlink + sums.pcie_most;
  const auto decide = [&](Verdict verdict, std::string reason, bool over_nvlink = false) {
    return proof_of(mode, 0, std::move(gpus), {verdict, std::move(reason)}, over_nvlink);
  };
  if (gpus.empty()) return decide(Verdict::unproven, "no GPU is here");
  if (std::string why = unusable(gpus); !why.empty()) return decide(Verdict::unproven, why);
  const bool wants_nvlink = mode == LinkMode::nvlink;
  if (wants_nvlink && !sums.nvlink_active) return decide(Verdict::contradicted, "no GPU here has an active NVLink");
  const bool pcie_known = sums.pcie_least == sums.pcie_most;
  const std::string seen =
      fmt::format("NVLink carried {}, PCIe {}{}, over all GPUs, in and out", gigabytes(nvlink),
                  pcie_known            ? ""
                  : sums.pcie_least > 0 ? fmt::format("at least {} and at most ", gigabytes(sums.pcie_least))
                                        : "at most ",
                  gigabytes(sums.pcie_most));
  const bool vouched = !wants_nvlink && nvlink == 0 && sums.nccl_avoids_nvlink;  // needs no bytes to have moved
  if (most < kLeastTraining && !vouched) return decide(Verdict::unproven, seen + ": too little to tell");
  if (nvlink > kNothing * most) {
    if (mode == LinkMode::pcie || mode == LinkMode::net) return decide(Verdict::contradicted, seen);
    if (nvlink > sums.pcie_most) return decide(Verdict::proven, seen, true);
    return decide(Verdict::unproven, seen + ": PCIe also carries what the program reads");
  }
  const bool needs_pcie = wants_nvlink || nvlink > 0 || !sums.nccl_avoids_nvlink;
  if (needs_pcie && (least < kLeastTraining || nvlink > kNothing * least)) {
    return decide(Verdict::unproven, seen + ": what PCIe carried cannot be read");
  }
  if (nvlink > kMostStray) return decide(Verdict::unproven, seen + ": it may be all that the GPUs sent each other");
  if (wants_nvlink) {
    return decide(sums.nccl_avoids_nvlink ? Verdict::contradicted : Verdict::unproven,
                  seen + (sums.nccl_avoids_nvlink ? ", and by its log NCCL avoids NVLink"
                                                  : ": PCIe also carries what the program reads"));
  }
  if (nvlink == 0 && sums.nvlink_active && !sums.nccl_avoids_nvlink) {
    return decide(Verdict::unproven, seen + ": nothing shows that the NVLink counters would have moved");
  }
  return decide(Verdict::proven, seen);
}

}  // namespace lockstep
