#include "framework/interconnect/link_proof.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

constexpr double kWithin = 0.02;        // NVLink's share of the probe's bytes
constexpr double kNothing = 0.01;       // what counts as no bytes
constexpr double kMuch = 0.5;           // of the bytes: more than anything but them would make
constexpr double kAll = 0.9;            // what counts as all of them, where a count includes the protocol
constexpr double kMostOverhead = 2.05;  // protocols with flags send each byte twice
constexpr double kMib = 1024.0 * 1024.0;
constexpr double kLeastTraining = 64 * kMib;  // below, other collectives count too
constexpr double kMostStray = 16 * kMib;
constexpr double kRounding = 64 * 1024.0;  // counters in KiB, of each link

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

// What PCIe saw of the bytes in the direction in which it saw less; 0 where it cannot be read.
double pcie_share(const LinkTraffic& gpu, double bytes) {
  return extremes(number(gpu.pcie_sent), number(gpu.pcie_received)).low / bytes;
}

std::string shown(const ByteCount& sent, const ByteCount& received) {
  if (const ByteCount& count = sent ? received : sent; !count) return fmt::format("unknown bytes ({})", count.why_not);
  return fmt::format("{} out and {} in", gigabytes(number(sent)), gigabytes(number(received)));
}

std::string shown(const LinkTraffic& gpu, double bytes) {
  return fmt::format("NVLink carried {} of {}, PCIe {}", shown(gpu.nvlink_sent, gpu.nvlink_received), gigabytes(bytes),
                     shown(gpu.pcie_sent, gpu.pcie_received));
}

Judgement judge_nvlink(const LinkTraffic& gpu, double bytes, bool nvls) {
  if (!gpu.nvlink_active) return {Verdict::contradicted, "the GPU has no active NVLink"};
  const auto [low, high] = extremes(number(gpu.nvlink_sent) / bytes, number(gpu.nvlink_received) / bytes);
  const std::string seen = shown(gpu, bytes);
  const bool in_range = low >= 1 - kWithin && high <= 1 + kWithin;
  const double pcie = pcie_share(gpu, bytes);
  if (in_range) return {pcie >= kMuch ? Verdict::contradicted : Verdict::proven, seen};
  if (high == 0 && pcie < kMuch && !gpu.nccl_avoids_nvlink) {
    return {Verdict::unproven, seen + ": the NVLink counters stand still, and nothing shows that it was another link"};
  }
  if (nvls && low > kNothing) return {Verdict::unproven, seen + ": NVLS sends other amounts than a ring"};
  if (low < 1 - kWithin) return {Verdict::contradicted, seen};
  return {Verdict::unproven, seen + ": something else used it too"};
}

Judgement judge_no_nvlink(const LinkTraffic& gpu, double bytes) {
  if (!gpu.nvlink_active) return {Verdict::proven, "the GPU has no active NVLink"};
  const double nvlink = extremes(number(gpu.nvlink_sent), number(gpu.nvlink_received)).high;
  const std::string seen = shown(gpu, bytes);
  const double pcie = pcie_share(gpu, bytes);
  if (nvlink > kNothing * bytes || (pcie > 0 && pcie < kMuch)) return {Verdict::contradicted, seen};
  if (nvlink == 0 && pcie < kAll && !gpu.nccl_avoids_nvlink) {
    return {Verdict::unproven, seen + ": nothing shows that the NVLink counters would have moved"};
  }
  return {Verdict::proven, seen};
}

int weight(Verdict verdict) { return verdict == Verdict::contradicted ? 2 : verdict == Verdict::unproven ? 1 : 0; }

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
    if (!worst || weight(one.verdict) > weight(worst->verdict)) worst = std::move(one);
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
  double pcie = 0;  // where it cannot be read, the most that it can have been
  bool pcie_known = true;
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
    sums.pcie += pcie_known ? number(gpu.pcie_sent) + number(gpu.pcie_received) : gpu.pcie_most_bytes;
    sums.pcie_known = sums.pcie_known && pcie_known;
    sums.nccl_avoids_nvlink = sums.nccl_avoids_nvlink && gpu.nccl_avoids_nvlink;
    sums.nvlink_active = sums.nvlink_active || gpu.nvlink_active;
  }
  return sums;
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  return verdict == Verdict::proven ? "proven" : verdict == Verdict::contradicted ? "contradicted" : "unproven";
}

double all_reduce_wire_bytes(double bytes, int ranks) { return bytes * 2 * (ranks - 1) / ranks; }

LinkProof judge_probe(LinkMode mode, double wire_bytes, std::vector<LinkTraffic> ranks, bool nvls) {
  if (ranks.size() < 2) return proof_of(mode, 0, std::move(ranks), {Verdict::unproven, "one rank uses no link"}, false);
  if (std::string why = unusable(ranks); !why.empty()) {
    return proof_of(mode, wire_bytes, std::move(ranks), {Verdict::unproven, std::move(why)}, false);
  }
  const Judgement with = judge_all(ranks, [&](const LinkTraffic& gpu) { return judge_nvlink(gpu, wire_bytes, nvls); });
  const Judgement without = judge_all(ranks, [&](const LinkTraffic& gpu) { return judge_no_nvlink(gpu, wire_bytes); });
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
  if (low < all - count * kRounding) return decide(Verdict::contradicted, seen);
  if (high > kMostOverhead * all) return decide(Verdict::unproven, seen + ": something else used it too");
  return decide(Verdict::proven, seen);
}

LinkProof judge_program(LinkMode mode, std::vector<LinkTraffic> gpus) {
  const Sums sums = sum_up(gpus);
  const double all = sums.nvlink() + sums.pcie;
  const auto decide = [&](Verdict verdict, std::string reason, bool over_nvlink = false) {
    return proof_of(mode, 0, std::move(gpus), {verdict, std::move(reason)}, over_nvlink);
  };
  if (gpus.empty()) return decide(Verdict::unproven, "no GPU is here");
  if (std::string why = unusable(gpus); !why.empty()) return decide(Verdict::unproven, why);
  const bool wants_nvlink = mode == LinkMode::nvlink;
  if (wants_nvlink && !sums.nvlink_active) return decide(Verdict::contradicted, "no GPU here has an active NVLink");
  const std::string seen =
      fmt::format("NVLink carried {}, PCIe {}{}, over all GPUs, in and out", gigabytes(sums.nvlink()),
                  sums.pcie_known ? "" : "at most ", gigabytes(sums.pcie));
  if (all < kLeastTraining) return decide(Verdict::unproven, seen + ": too little to tell");
  if (sums.nvlink() > kNothing * all) {
    if (mode == LinkMode::pcie || mode == LinkMode::net) return decide(Verdict::contradicted, seen);
    if (sums.nvlink() > sums.pcie) return decide(Verdict::proven, seen, true);
    return decide(Verdict::unproven, seen + ": PCIe also carries what the program reads");
  }
  if (!sums.pcie_known) return decide(Verdict::unproven, seen + ": what PCIe carried cannot be read");
  if (sums.nvlink() > kMostStray) {
    return decide(Verdict::unproven, seen + ": it may be all that the GPUs sent each other");
  }
  if (wants_nvlink) {
    return decide(sums.nccl_avoids_nvlink ? Verdict::contradicted : Verdict::unproven,
                  seen + (sums.nccl_avoids_nvlink ? ", and by its log NCCL avoids NVLink"
                                                  : ": PCIe also carries what the program reads"));
  }
  if (sums.nvlink() == 0 && sums.nvlink_active && !sums.nccl_avoids_nvlink) {
    return decide(Verdict::unproven, seen + ": nothing shows that the NVLink counters would have moved");
  }
  return decide(Verdict::proven, seen);
}

}  // namespace lockstep
