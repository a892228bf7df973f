#include "framework/interconnect/link_probe.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/fake_nvml.h"
#include "tests/support/worlds.h"

namespace lockstep {
namespace {

const ProbeOptions kSmall{.bytes = 1 << 16, .repeats = 3};

// A driver's counters that grow by `nvlink` and `pcie` times what the probe's ring sends.
class FakeCounters final : public LinkCounters {
 public:
  FakeCounters(double nvlink, double pcie, int ranks) : nvlink_(nvlink), pcie_(pcie), ranks_(ranks) {}
  void start() override { ++starts; }
  LinkTraffic stop() override {
    const double wire = kSmall.repeats * all_reduce_wire_bytes(static_cast<double>(kSmall.bytes), ranks_);
    const auto count = [wire](double share) { return ByteCount{static_cast<std::uint64_t>(share * wire), {}}; };
    return {.nvlink_sent = count(nvlink_),
            .nvlink_received = count(nvlink_),
            .pcie_sent = count(pcie_),
            .pcie_received = count(pcie_),
            .disturbance = disturbance};
  }
  int starts = 0;
  std::string disturbance;

 private:
  double nvlink_, pcie_;
  int ranks_;
};

TEST(LinkProbe, EveryRankComesToTheSameVerdict) {
  for (const int ranks : {2, 3}) {
    std::vector<LinkProof> proofs(static_cast<std::size_t>(ranks));
    run_local_world(ranks, [&](ProcessGroup& group) {
      FakeCounters counters(group.rank() == 1 ? 0.4 : 1.0, 0.0, ranks);  // one that is not on NVLink
      proofs[static_cast<std::size_t>(group.rank())] = probe_link(LinkMode::nvlink, group, counters, kSmall);
      EXPECT_EQ(counters.starts, 1);
    });
    for (const LinkProof& proof : proofs) {
      EXPECT_EQ(proof.verdict, Verdict::contradicted);
      EXPECT_EQ(proof.reason, proofs.front().reason);
      EXPECT_NE(proof.reason.find("rank 1"), std::string::npos) << proof.reason;
      EXPECT_EQ(proof.gpus.size(), static_cast<std::size_t>(ranks));
      EXPECT_EQ(proof.expected_bytes, 3 * 65536 * 2.0 * (ranks - 1) / ranks);
    }
  }
}

TEST(LinkProbe, ProvesWhatTheCountersShow) {
  run_gloo_world(2, [](ProcessGroup& group) {
    FakeCounters nvlink(1.0, 0.01, 2);
    EXPECT_EQ(probe_link(LinkMode::nvlink, group, nvlink, kSmall).verdict, Verdict::proven);
    FakeCounters staged(0.0, 1.05, 2);
    EXPECT_EQ(probe_link(LinkMode::pcie, group, staged, kSmall).verdict, Verdict::proven);
    FakeCounters other(0.0, 1.05, 2);
    if (group.rank() == 0) other.disturbance = std::string(500, 'x');
    const LinkProof proof = probe_link(LinkMode::pcie, group, other, kSmall);
    EXPECT_EQ(proof.verdict, Verdict::unproven);
    EXPECT_NE(proof.reason.find("rank 0: xxx"), std::string::npos) << proof.reason;
  });
}

TEST(LinkProbe, NcclsWordIsThatOfEveryRank) {
  for (const bool everywhere : {true, false}) {
    run_gloo_world(2, [&](ProcessGroup& group) {
      FakeCounters silent(0.0, 0.0, 2);
      ProbeOptions options = kSmall;
      options.nccl_avoids_nvlink = [&] { return everywhere || group.rank() == 0; };
      EXPECT_EQ(probe_link(LinkMode::net, group, silent, options).verdict,
                everywhere ? Verdict::proven : Verdict::unproven);
    });
  }
}

// A launcher that hands no environment on, as mpirun does, can leave the ranks with settings of their own.
TEST(LinkProbe, WhatOneRankWasToldHoldsForAll) {
  std::vector<LinkProof> proofs(2);
  run_local_world(2, [&](ProcessGroup& group) {
    FakeCounters counters(0.75, 0.0, 2);  // contradicted, if it were a ring
    ProbeOptions options = kSmall;
    if (group.rank() == 1) options.conditions.other_amounts = "NCCL_ALGO=Tree";
    proofs[static_cast<std::size_t>(group.rank())] = probe_link(LinkMode::nvlink, group, counters, options);
  });
  for (const LinkProof& proof : proofs) {
    EXPECT_EQ(proof.verdict, Verdict::unproven);
    EXPECT_NE(proof.reason.find("NCCL_ALGO=Tree"), std::string::npos) << proof.reason;
  }
}

TEST(LinkProbe, OneRankHasNoLink) {
  run_local_world(1, [](ProcessGroup& group) {
    FakeCounters counters(1.0, 0.0, 1);
    EXPECT_EQ(probe_link(LinkMode::nvlink, group, counters, kSmall).verdict, Verdict::unproven);
  });
}

TEST(LinkProbe, ReadsTheDriversLibrary) {
  auto gpus = std::vector{testing::fake_h200(0), testing::fake_h200(1)};
  const std::uint64_t kib = 3 * 64;  // what two ranks send in three all-reduces of 64 KiB
  for (auto& gpu : gpus) {
    for (const char* field : {"138", "139"}) gpu["counters"][field] = {{"values", {5000, 5000, 5000 + kib}}};
  }
  const testing::FakeNvml fake(testing::fake_machine(gpus));
  const auto nvml = Nvml::open();
  run_local_world(2, [&](ProcessGroup& group) {
    const auto counters = make_link_counters(nvml, gpus[static_cast<std::size_t>(group.rank())]["uuid"]);
    const LinkProof proof = probe_link(LinkMode::nvlink, group, *counters, kSmall);
    EXPECT_EQ(proof.verdict, Verdict::proven) << proof.reason;
    EXPECT_TRUE(proof.over_nvlink);
  });
}

}  // namespace
}  // namespace lockstep
