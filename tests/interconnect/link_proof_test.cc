#include "framework/interconnect/link_proof.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/support/seed.h"

namespace lockstep {
namespace {

constexpr double kWire = 4e9;

ByteCount count(double bytes) { return {static_cast<std::uint64_t>(bytes), {}}; }

// By NCCL's own log.
LinkTraffic avoiding_nvlink(LinkTraffic traffic) {
  traffic.nccl_avoids_nvlink = true;
  return traffic;
}

// A GPU whose links carried these shares of kWire, out and in alike; below 0: that cannot be read.
LinkTraffic gpu(double nvlink, double pcie) {
  const auto bytes = [](double share) {
    return share < 0 ? ByteCount{std::nullopt, "not supported"} : count(share * kWire);
  };
  return {.nvlink_sent = bytes(nvlink),
          .nvlink_received = bytes(nvlink),
          .pcie_sent = bytes(pcie),
          .pcie_received = bytes(pcie)};
}

// PCIe was not always read in time.
LinkTraffic with_gaps(double nvlink, double least_pcie, double most_pcie) {
  LinkTraffic traffic = gpu(nvlink, -1);
  traffic.pcie_least_bytes = 2 * least_pcie * kWire;
  traffic.pcie_most_bytes = 2 * most_pcie * kWire;
  return traffic;
}

LinkTraffic unlinked(double pcie) {
  LinkTraffic traffic = gpu(0, pcie);
  traffic.nvlink_active = false;
  return traffic;
}

ProbeConditions conditions_of(const std::vector<std::string>& environment) {
  return probe_conditions(NcclSettings(environment, {}));
}

Verdict probe(LinkMode mode, const LinkTraffic& a, const LinkTraffic& b) {
  return judge_probe(mode, kWire, {a, b}).verdict;
}
Verdict probe(LinkMode mode, const LinkTraffic& both) { return probe(mode, both, both); }

TEST(LinkProof, VerdictsHaveNamesAndAnOrder) {
  for (const Verdict verdict : {Verdict::proven, Verdict::unproven, Verdict::contradicted}) {
    EXPECT_EQ(parse_verdict(verdict_name(verdict)), verdict);
    EXPECT_EQ(worse_of(verdict, Verdict::proven), verdict);
    EXPECT_EQ(worse_of(Verdict::contradicted, verdict), Verdict::contradicted);
  }
  for (const char* other : {"", "Proven", "emulated", "not measured"}) EXPECT_EQ(parse_verdict(other), std::nullopt);
}

TEST(LinkProof, WireBytesOfARing) {
  EXPECT_EQ(all_reduce_wire_bytes(100, 1), 0);
  EXPECT_EQ(all_reduce_wire_bytes(100, 2), 100);
  EXPECT_EQ(all_reduce_wire_bytes(100, 8), 175);
}

TEST(LinkProof, NvlinkNeedsItsBytesWithinTwoPercent) {
  EXPECT_EQ(probe(LinkMode::nvlink, gpu(1.0, 0.0)), Verdict::proven);
  EXPECT_EQ(probe(LinkMode::nvlink, gpu(0.981, 0.001)), Verdict::proven);
  EXPECT_EQ(probe(LinkMode::nvlink, gpu(1.019, -1)), Verdict::proven);
  EXPECT_EQ(probe(LinkMode::nvlink, gpu(0.97, 0.0)), Verdict::contradicted);
  EXPECT_EQ(probe(LinkMode::nvlink, gpu(0.0, 1.0)), Verdict::contradicted);
  EXPECT_EQ(probe(LinkMode::nvlink, gpu(0.005, -1)), Verdict::contradicted);
  EXPECT_EQ(probe(LinkMode::nvlink, gpu(1.03, 0.0)), Verdict::unproven);                    // somebody else's too
  EXPECT_EQ(probe(LinkMode::nvlink, gpu(1.0, 0.0), gpu(0.5, 0.5)), Verdict::contradicted);  // a pair without a link
  EXPECT_EQ(probe(LinkMode::nvlink, gpu(1.0, 0.9)), Verdict::contradicted);                 // PCIe tells another story
  EXPECT_EQ(probe(LinkMode::nvlink, unlinked(1.0)), Verdict::contradicted);
}

TEST(LinkProof, WithoutNvlinkItMayCarryOnePercent) {
  for (const LinkMode mode : {LinkMode::pcie, LinkMode::net}) {
    EXPECT_EQ(probe(mode, gpu(0.0, 1.0)), Verdict::proven);
    EXPECT_EQ(probe(mode, gpu(0.009, 1.1)), Verdict::proven);
    EXPECT_EQ(probe(mode, gpu(0.009, -1)), Verdict::proven);  // a counter that moved is alive
    EXPECT_EQ(probe(mode, gpu(0.011, 1.0)), Verdict::contradicted);
    EXPECT_EQ(probe(mode, gpu(1.0, 0.0)), Verdict::contradicted);
    EXPECT_EQ(probe(mode, gpu(0.0, 1.0), gpu(0.6, 1.0)), Verdict::contradicted);
    EXPECT_EQ(probe(mode, gpu(0.0, 0.1)), Verdict::contradicted);  // the bytes were nowhere
    EXPECT_EQ(probe(mode, unlinked(-1)), Verdict::proven);
  }
}

TEST(LinkProof, CountersThatStandStillProveNothing) {
  EXPECT_EQ(probe(LinkMode::pcie, gpu(0.0, 0.7)), Verdict::unproven);  // where was the rest?
  for (const double pcie : {0.0, -1.0}) {
    EXPECT_EQ(probe(LinkMode::pcie, gpu(0.0, pcie)), Verdict::unproven);
    EXPECT_EQ(probe(LinkMode::nvlink, gpu(0.0, pcie)), Verdict::unproven);
    EXPECT_EQ(probe(LinkMode::automatic, gpu(0.0, pcie)), Verdict::unproven);
  }
}

TEST(LinkProof, NcclsWordVouchesForCountersThatStandStill) {
  for (const double pcie : {1.0, 0.7, 0.0, -1.0}) {
    const LinkTraffic staged = avoiding_nvlink(gpu(0.0, pcie));
    EXPECT_EQ(probe(LinkMode::pcie, staged), Verdict::proven) << pcie;
    EXPECT_EQ(probe(LinkMode::net, staged), Verdict::proven) << pcie;
    EXPECT_EQ(probe(LinkMode::nvlink, staged), Verdict::contradicted) << pcie;
  }
  // Of every rank, and not against what the counters say.
  EXPECT_EQ(probe(LinkMode::pcie, avoiding_nvlink(gpu(0.0, -1)), gpu(0.0, -1)), Verdict::unproven);
  EXPECT_EQ(probe(LinkMode::pcie, avoiding_nvlink(gpu(0.5, -1))), Verdict::contradicted);
  EXPECT_EQ(probe(LinkMode::pcie, avoiding_nvlink(gpu(0.0, 0.1))), Verdict::unproven);
  EXPECT_EQ(probe(LinkMode::pcie, avoiding_nvlink(gpu(0.005, 0.1))), Verdict::contradicted);
  EXPECT_EQ(probe(LinkMode::pcie, avoiding_nvlink(gpu(-1, 1.0))), Verdict::unproven);
}

// A driver may count one direction of PCIe lower than the other.
TEST(LinkProof, TheWeakerDirectionOfPcieContradictsNothing) {
  LinkTraffic uneven = gpu(0.0, 1.0);
  uneven.pcie_sent = count(0.3 * kWire);
  for (const LinkMode mode : {LinkMode::pcie, LinkMode::net}) {
    EXPECT_EQ(probe(mode, uneven), Verdict::unproven);
    EXPECT_EQ(probe(mode, avoiding_nvlink(uneven)), Verdict::proven);
  }
}

TEST(LinkProof, TheBytesOfPcieAreSaidWhateverTheVerdict) {
  for (const LinkMode mode : {LinkMode::nvlink, LinkMode::pcie, LinkMode::net, LinkMode::automatic}) {
    const std::string known = judge_probe(mode, kWire, {gpu(1.0, 0.25), gpu(1.0, 0.25)}).reason;
    EXPECT_NE(known.find("PCIe 1.00 GB out and 1.00 GB in"), std::string::npos) << known;
    const std::string unknown = judge_probe(mode, kWire, {gpu(1.0, -1), gpu(1.0, -1)}).reason;
    EXPECT_NE(unknown.find("PCIe unknown bytes (not supported)"), std::string::npos) << unknown;
  }
}

TEST(LinkProof, WhatCannotBeReadIsUnprovenWithTheReason) {
  for (const LinkMode mode : {LinkMode::automatic, LinkMode::nvlink, LinkMode::pcie, LinkMode::net}) {
    LinkTraffic silent = gpu(-1, 1.0);
    silent.gpu = "rank 1";
    const LinkProof refused = judge_probe(mode, kWire, {gpu(1.0, 0.0), silent});
    EXPECT_EQ(refused.verdict, Verdict::unproven);
    EXPECT_NE(refused.reason.find("rank 1"), std::string::npos) << refused.reason;
    EXPECT_NE(refused.reason.find("not supported"), std::string::npos) << refused.reason;
    LinkTraffic shared = gpu(mode == LinkMode::nvlink ? 1.0 : 0.0, 1.0);
    shared.disturbance = "process 4711 is on the GPU too";
    const LinkProof disturbed = judge_probe(mode, kWire, {shared, gpu(0.0, 1.0)});
    EXPECT_EQ(disturbed.verdict, Verdict::unproven);
    EXPECT_NE(disturbed.reason.find("4711"), std::string::npos) << disturbed.reason;
    EXPECT_EQ(judge_probe(mode, 0, {}).verdict, Verdict::unproven);
  }
}

TEST(LinkProof, AutomaticSaysWhichLinkItWas) {
  const LinkProof nvlink = judge_probe(LinkMode::automatic, kWire, {gpu(1, 0), gpu(1, 0)});
  EXPECT_EQ(nvlink.verdict, Verdict::proven);
  EXPECT_TRUE(nvlink.over_nvlink);
  const LinkProof staged = judge_probe(LinkMode::automatic, kWire, {gpu(0, 1), gpu(0, 1)});
  EXPECT_EQ(staged.verdict, Verdict::proven);
  EXPECT_FALSE(staged.over_nvlink);
  EXPECT_EQ(probe(LinkMode::automatic, gpu(1, 0), gpu(0.5, 0.5)), Verdict::unproven);  // some of both
}

TEST(LinkProof, MulticastSendsFewerBytesThanARing) {
  const std::vector<LinkTraffic> gpus(8, gpu(1.125 / 1.75, 0.0));
  EXPECT_EQ(judge_probe(LinkMode::nvlink, kWire, gpus).verdict, Verdict::contradicted);
  const LinkProof allowed = judge_probe(LinkMode::nvlink, kWire, gpus, conditions_of({"NCCL_NVLS_ENABLE=1"}));
  EXPECT_EQ(allowed.verdict, Verdict::unproven);
  EXPECT_NE(allowed.reason.find("NVLS sends other amounts"), std::string::npos) << allowed.reason;
}

TEST(LinkProof, ProtocolsWithFlagsSendMore) {
  for (const double share : {1.07, 2.0}) {  // LL128, LL
    const std::vector<LinkTraffic> gpus(2, gpu(share, 0.0));
    for (const char* with_flags : {"NCCL_PROTO=LL", "NCCL_PROTO=LL128,Simple", "NCCL_PROTO=^Simple"}) {
      EXPECT_EQ(judge_probe(LinkMode::nvlink, kWire, gpus, conditions_of({with_flags})).verdict, Verdict::proven);
    }
    for (const char* without : {"NCCL_PROTO=Simple", "NCCL_PROTO=simple", "NCCL_PROTO="}) {
      EXPECT_EQ(judge_probe(LinkMode::nvlink, kWire, gpus, conditions_of({without})).verdict, Verdict::unproven);
    }
  }
  const auto with_flags = [](double share) {
    return judge_probe(LinkMode::nvlink, kWire, {gpu(share, 0), gpu(share, 0)}, conditions_of({"NCCL_PROTO=LL"}));
  };
  EXPECT_EQ(with_flags(2.1).verdict, Verdict::unproven);
  EXPECT_EQ(with_flags(0.9).verdict, Verdict::contradicted);
}

TEST(LinkProof, AlgorithmsThatAreNoRingAreNamed) {
  // Three ranks, a chain: its ends send half of what the middle does.
  const double end = 1 / (4.0 / 3);
  const std::vector<LinkTraffic> tree{gpu(end, 0.0), gpu(2 * end, 0.0), gpu(end, 0.0)};
  const std::vector<LinkTraffic> staged{gpu(0.0, end / 2), gpu(0.0, end), gpu(0.0, end / 2)};
  for (const LinkMode mode : {LinkMode::nvlink, LinkMode::automatic}) {
    const LinkProof proof = judge_probe(mode, kWire, tree, conditions_of({"NCCL_ALGO=Tree"}));
    EXPECT_EQ(proof.verdict, Verdict::unproven);
    EXPECT_NE(proof.reason.find("NCCL_ALGO=Tree sends other amounts"), std::string::npos) << proof.reason;
  }
  EXPECT_EQ(judge_probe(LinkMode::nvlink, kWire, tree, conditions_of({"NCCL_ALGO=Ring"})).verdict,
            Verdict::contradicted);
  const LinkProof without = judge_probe(LinkMode::pcie, kWire, staged, conditions_of({"NCCL_ALGO=Tree"}));
  EXPECT_EQ(without.verdict, Verdict::unproven);
  EXPECT_NE(without.reason.find("NCCL_ALGO=Tree"), std::string::npos) << without.reason;
  // The bytes are nowhere near NVLink, or on it where it was to be off: no algorithm explains that.
  EXPECT_EQ(judge_probe(LinkMode::nvlink, kWire, {gpu(0, 1), gpu(0, 1)}, conditions_of({"NCCL_ALGO=Tree"})).verdict,
            Verdict::contradicted);
  EXPECT_EQ(judge_probe(LinkMode::pcie, kWire, tree, conditions_of({"NCCL_ALGO=Tree"})).verdict, Verdict::contradicted);
}

// The most and the least share of kWire that a readable NVLink counter of any GPU shows; unreadable: -1 and infinity.
struct Shares {
  double least = 1e9, most = 0;
};
Shares nvlink_shares(const std::vector<LinkTraffic>& gpus) {
  Shares shares;
  for (const LinkTraffic& one : gpus) {
    for (const ByteCount* bytes : {&one.nvlink_sent, &one.nvlink_received}) {
      if (!*bytes) return {-1, INFINITY};
      shares.least = std::min(shares.least, static_cast<double>(**bytes) / kWire);
      shares.most = std::max(shares.most, static_cast<double>(**bytes) / kWire);
    }
  }
  return shares;
}

// Whatever the counters say: "proven" only where the rule's inequalities hold on every GPU, nobody else was there, and
// counters that stand still have another witness.
TEST(LinkProof, NoReadingProvesWhatItDoesNotShow) {
  std::mt19937_64 random(testing::test_seed());
  const double shares[] = {-1, 0, 0.003, 0.01, 0.02, 0.3, 0.5, 0.9, 0.985, 1.0, 1.01, 1.05, 2.0};
  const auto any = [&] { return shares[random() % std::size(shares)]; };
  for (int i = 0; i < 20000; ++i) {
    std::vector<LinkTraffic> gpus;
    for (std::size_t rank = 0; rank < 2 + random() % 3; ++rank) {
      LinkTraffic one = gpu(any(), any());
      one.nvlink_received = gpu(any(), 0).nvlink_sent;
      one.pcie_received = gpu(0, any()).pcie_sent;
      if (random() % 20 == 0) one.disturbance = "somebody";
      if (random() % 4 == 0) one.nccl_avoids_nvlink = true;
      gpus.push_back(one);
    }
    const auto [least, most] = nvlink_shares(gpus);
    const bool disturbed =
        std::any_of(gpus.begin(), gpus.end(), [](const LinkTraffic& one) { return !one.disturbance.empty(); });
    const bool vouched_for = std::all_of(gpus.begin(), gpus.end(), [](const LinkTraffic& one) {
      const bool moved = *one.nvlink_sent > 0 || *one.nvlink_received > 0;
      const bool over_pcie = one.pcie_sent && one.pcie_received &&
                             static_cast<double>(std::min(*one.pcie_sent, *one.pcie_received)) >= 0.9 * kWire;
      return moved || over_pcie || one.nccl_avoids_nvlink;
    });
    for (const LinkMode mode : {LinkMode::automatic, LinkMode::nvlink, LinkMode::pcie, LinkMode::net}) {
      const LinkProof probe = judge_probe(mode, kWire, gpus);
      if (probe.verdict == Verdict::proven) {
        EXPECT_FALSE(disturbed);
        EXPECT_TRUE(mode == LinkMode::automatic || probe.over_nvlink == (mode == LinkMode::nvlink));
        if (probe.over_nvlink) {
          EXPECT_GE(least, 0.97999);
          EXPECT_LE(most, 1.02001);
        } else {
          EXPECT_LE(most, 0.01001);
          EXPECT_TRUE(vouched_for);
        }
      }
      // Of a training after any probe, and of a program: by the sums.
      const LinkProof after = judge_probe(mode, kWire, {gpu(any(), any()), gpu(any(), any())});
      const LinkProof training = judge_training(after, kWire, gpus);
      if (training.verdict == Verdict::proven) {
        EXPECT_FALSE(disturbed);
        EXPECT_EQ(after.verdict, Verdict::proven);
        EXPECT_GE(least, 0);
        EXPECT_TRUE(training.over_nvlink ? most >= 0.99 : most <= 0.01001 * static_cast<double>(gpus.size())) << most;
      }
      const LinkProof program = judge_program(mode, gpus);
      if (program.verdict == Verdict::proven) {
        EXPECT_FALSE(disturbed);
        EXPECT_GE(least, 0);
        EXPECT_TRUE(mode == LinkMode::automatic || program.over_nvlink == (mode == LinkMode::nvlink));
        EXPECT_TRUE(program.over_nvlink ? most > 0 : most * kWire <= 16.0 * 1024 * 1024) << most;
        if (!program.over_nvlink && most == 0) {
          EXPECT_TRUE(std::all_of(gpus.begin(), gpus.end(), [](const auto& one) { return one.nccl_avoids_nvlink; }));
        }
      }
    }
  }
}

LinkProof proven_probe(LinkMode mode) {
  const LinkTraffic traffic = mode == LinkMode::nvlink ? gpu(1, 0) : gpu(0, 1);
  return judge_probe(mode, kWire, {traffic, traffic});
}

Verdict training(LinkMode mode, double a, double b) {
  return judge_training(proven_probe(mode), kWire, {gpu(a, -1), gpu(b, -1)}).verdict;
}

TEST(LinkProof, TrainingMayNeedTwiceTheBytes) {
  EXPECT_EQ(training(LinkMode::nvlink, 1.0, 1.0), Verdict::proven);
  EXPECT_EQ(training(LinkMode::nvlink, 2.04, 2.04), Verdict::proven);
  EXPECT_EQ(training(LinkMode::nvlink, 0.9, 1.1), Verdict::proven);  // a tree loads its ranks unevenly
  // What the counters cannot tell, what may be missing, and what is.
  EXPECT_EQ(training(LinkMode::nvlink, 0.9997, 0.9997), Verdict::proven);
  EXPECT_EQ(training(LinkMode::nvlink, 0.9985, 0.9985), Verdict::unproven);
  EXPECT_EQ(training(LinkMode::nvlink, 0.981, 0.981), Verdict::unproven);
  EXPECT_EQ(training(LinkMode::nvlink, 0.979, 0.979), Verdict::contradicted);
  EXPECT_EQ(training(LinkMode::nvlink, 0.0, 0.0), Verdict::contradicted);
  EXPECT_EQ(training(LinkMode::nvlink, 2.1, 2.1), Verdict::unproven);
  EXPECT_EQ(training(LinkMode::pcie, 0.0, 0.0), Verdict::proven);
  EXPECT_EQ(training(LinkMode::pcie, 0.01, 0.005), Verdict::proven);
  EXPECT_EQ(training(LinkMode::pcie, 0.02, 0.02), Verdict::contradicted);
  EXPECT_EQ(training(LinkMode::net, 1.0, 1.0), Verdict::contradicted);
}

TEST(LinkProof, ATrainingInModeAutoIsNotContradicted) {
  const LinkProof probe = judge_probe(LinkMode::automatic, kWire, {gpu(1, 0), gpu(1, 0)});
  EXPECT_EQ(judge_training(probe, kWire, {gpu(1, -1), gpu(1, -1)}).verdict, Verdict::proven);
  EXPECT_EQ(judge_training(probe, kWire, {gpu(0, -1), gpu(0, -1)}).verdict, Verdict::unproven);
}

TEST(LinkProof, TrainingProvesNothingWhereTheProbeDidNot) {
  const LinkProof blind = judge_probe(LinkMode::pcie, kWire, {gpu(0, -1), gpu(0, -1)});
  const LinkProof proof = judge_training(blind, kWire, {gpu(0, -1), gpu(0, -1)});
  EXPECT_EQ(proof.verdict, Verdict::unproven);
  EXPECT_NE(proof.reason.find("would have moved"), std::string::npos) << proof.reason;
  EXPECT_EQ(judge_training(proven_probe(LinkMode::pcie), 1e6, {gpu(0, -1), gpu(0, -1)}).verdict, Verdict::unproven);
}

TEST(LinkProof, AProgramIsJudgedByTheShares) {
  const auto program = [](LinkMode mode, const LinkTraffic& traffic) {
    return judge_program(mode, {traffic, traffic}).verdict;
  };
  for (const LinkMode mode : {LinkMode::pcie, LinkMode::net}) {
    EXPECT_EQ(program(mode, gpu(0.001, 1)), Verdict::proven);
    EXPECT_EQ(program(mode, gpu(0, 1)), Verdict::unproven);  // are they alive?
    EXPECT_EQ(program(mode, avoiding_nvlink(gpu(0, 1))), Verdict::proven);
    EXPECT_EQ(judge_program(mode, {avoiding_nvlink(gpu(0, 1)), gpu(0, 1)}).verdict, Verdict::unproven);
    // Still counters of NVLink and NCCL's word need no bytes of PCIe, which may have been read too late.
    EXPECT_EQ(program(mode, avoiding_nvlink(gpu(0, -1))), Verdict::proven);
    EXPECT_EQ(program(mode, avoiding_nvlink(gpu(0, 0.001))), Verdict::proven);  // to read them changes nothing
    EXPECT_EQ(judge_program(mode, {avoiding_nvlink(gpu(0, -1)), gpu(0, -1)}).verdict, Verdict::unproven);
    EXPECT_EQ(program(mode, avoiding_nvlink(gpu(0.001, -1))), Verdict::unproven);
    EXPECT_EQ(program(mode, with_gaps(0.001, 1, 3)), Verdict::proven);
    EXPECT_EQ(program(mode, with_gaps(0.001, 0.05, 3)), Verdict::unproven);
    EXPECT_EQ(program(mode, with_gaps(0.1, 1, 3)), Verdict::contradicted);
    EXPECT_EQ(program(mode, avoiding_nvlink(gpu(1, 0.1))), Verdict::contradicted);
    EXPECT_EQ(program(mode, gpu(1, 0.1)), Verdict::contradicted);
    EXPECT_EQ(program(mode, gpu(0.02, 1)), Verdict::contradicted);
    EXPECT_EQ(program(mode, gpu(0.009, 1)), Verdict::unproven);  // 144 MB may be all that was exchanged
    EXPECT_EQ(program(mode, gpu(0, 0)), Verdict::unproven);
    EXPECT_EQ(program(mode, gpu(0, -1)), Verdict::unproven);
    EXPECT_EQ(program(mode, gpu(-1, 1)), Verdict::unproven);
    // Bytes of PCIe that cannot be read are at most what it can carry: beside NVLink's 16 GB, 8 are nothing.
    LinkTraffic uncounted = gpu(1, -1);
    EXPECT_EQ(program(mode, uncounted), Verdict::unproven);
    uncounted.pcie_most_bytes = 2 * kWire;
    EXPECT_EQ(program(mode, uncounted), Verdict::contradicted);
    uncounted.pcie_most_bytes = 500 * kWire;
    EXPECT_EQ(program(mode, uncounted), Verdict::unproven);
    EXPECT_EQ(program(mode, unlinked(1)), Verdict::proven);
    EXPECT_EQ(program(mode, unlinked(0)), Verdict::unproven);   // did anything move?
    EXPECT_EQ(program(mode, unlinked(-1)), Verdict::unproven);  // the same
    EXPECT_EQ(judge_program(mode, {}).verdict, Verdict::unproven);
  }
  EXPECT_EQ(program(LinkMode::nvlink, gpu(1, 0.1)), Verdict::proven);
  EXPECT_EQ(program(LinkMode::nvlink, with_gaps(1, 0.1, 0.9)), Verdict::proven);
  EXPECT_EQ(program(LinkMode::nvlink, with_gaps(1, 0.1, 1.1)), Verdict::unproven);
  EXPECT_EQ(program(LinkMode::nvlink, avoiding_nvlink(gpu(0.0, -1))), Verdict::unproven);
  EXPECT_EQ(program(LinkMode::nvlink, gpu(0.3, 1)), Verdict::unproven);
  EXPECT_EQ(program(LinkMode::nvlink, gpu(0.0, 1)), Verdict::unproven);    // a counter that never moves, or input
  EXPECT_EQ(program(LinkMode::nvlink, gpu(0.001, 1)), Verdict::unproven);  // little was sent, much was read
  EXPECT_EQ(program(LinkMode::nvlink, gpu(0.01, 50)), Verdict::unproven);
  EXPECT_EQ(program(LinkMode::nvlink, avoiding_nvlink(gpu(0.0, 1))), Verdict::contradicted);
  EXPECT_EQ(program(LinkMode::nvlink, avoiding_nvlink(gpu(0.001, 1))), Verdict::contradicted);
  EXPECT_EQ(program(LinkMode::nvlink, avoiding_nvlink(gpu(0.01, 50))), Verdict::unproven);  // NVLink sent 160 MB
  EXPECT_EQ(program(LinkMode::nvlink, gpu(0.0, 0.001)), Verdict::unproven);
  EXPECT_EQ(program(LinkMode::nvlink, unlinked(1)), Verdict::contradicted);
  EXPECT_TRUE(judge_program(LinkMode::automatic, {gpu(1, 0.1)}).over_nvlink);
}

}  // namespace
}  // namespace lockstep
