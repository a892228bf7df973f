#include "framework/interconnect/claims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tests/support/text.h"

namespace lockstep {
namespace {

using testing::contains;
using Kind = ClaimVerdict;

GpuNode gpu_with(const char* name, int compute_capability, int generation, int links, double gb_s) {
  GpuNode gpu{.name = name, .compute_capability = compute_capability};
  gpu.nvlinks = gpu.active_nvlinks = links;
  gpu.nvlink_generation = generation;
  gpu.nvlink_gb_s = gb_s;
  gpu.pcie_now = gpu.pcie_most = {.generation = compute_capability >= 90   ? 5
                                                : compute_capability >= 80 ? 4
                                                                           : 3,
                                  .width = 16};
  return gpu;
}

const GpuNode kP100 = gpu_with("Tesla P100-SXM2-16GB", 60, 1, 4, 20);
const GpuNode kV100 = gpu_with("Tesla V100-SXM2-16GB", 70, 2, 6, 25);
const GpuNode kA100 = gpu_with("NVIDIA A100-SXM4-40GB", 80, 3, 12, 25);
const GpuNode kH200 = gpu_with("NVIDIA H200", 90, 4, 18, 25);

ClaimEvidence two(const GpuNode& gpu, GpuPath path) {
  ClaimEvidence evidence;
  evidence.topology.gpus = {gpu, gpu};
  evidence.topology.pairs = {{.a = 0, .b = 1, .path = path, .nvlinks = gpu.active_nvlinks}};
  return evidence;
}

// What two H200s measured.
ClaimEvidence two_h200() {
  ClaimEvidence evidence = two(kH200, GpuPath::nvswitch);
  evidence.topology.virtual_machine = "KVM";
  evidence.nvlink_by_itself = true;
  evidence.nvlink = SweepEnds{.small_bytes = 8, .small_us = 14, .large_bytes = 1 << 30, .large_busbw = 328};
  evidence.staged = SweepEnds{.small_bytes = 8, .small_us = 22, .large_bytes = 1 << 30, .large_busbw = 27.4};
  evidence.trainings = {{.what = "VGG-16 at 32 images a GPU",
                         .speedup = {2.39, 2.31, 2.47},
                         .proven = true,
                         .nvlink_gradient_bytes = 553430176,
                         .staged_gradient_bytes = 553430176}};
  return evidence;
}

ClaimAnswer answer(const ClaimEvidence& evidence, std::string_view name) {
  const auto answers = answer_claims(evidence);
  const auto found =
      std::find_if(answers.begin(), answers.end(), [&](const ClaimAnswer& one) { return one.claim->name == name; });
  return found == answers.end() ? ClaimAnswer{} : *found;
}

TEST(Claims, EachHasBothLanguagesASourceAndAnAnswer) {
  const auto answers = answer_claims({});
  ASSERT_EQ(answers.size(), claims().size());
  ASSERT_GE(answers.size(), 14u);
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const Claim& claim = claims()[i];
    EXPECT_EQ(answers[i].claim, &claim);
    EXPECT_TRUE(names.insert(claim.name).second) << claim.name;
    for (const auto& text : {claim.chinese, claim.english, claim.right, claim.source, claim.test}) {
      EXPECT_FALSE(text.empty()) << claim.name;
      EXPECT_EQ(text.find('|'), std::string_view::npos) << "would end a cell of a table: " << text;
    }
    EXPECT_TRUE(std::any_of(claim.chinese.begin(), claim.chinese.end(), [](char c) {
      return static_cast<unsigned char>(c) > 0xE3;
    })) << claim.chinese;
  }
}

TEST(Claims, NothingIsMeasurableWhereNothingWasMeasured) {
  for (const ClaimAnswer& one : answer_claims({})) {
    EXPECT_EQ(one.verdict, Kind::not_measurable) << one.claim->name << ": " << one.reason;
    EXPECT_EQ(one.measured, "") << one.claim->name;
    EXPECT_FALSE(one.reason.empty()) << one.claim->name;
  }
}

TEST(Claims, EmulationReproducesAndRefutesNothing) {
  ClaimEvidence evidence = two_h200();
  evidence.emulated = true;
  for (const ClaimAnswer& one : answer_claims(evidence)) EXPECT_EQ(one.verdict, Kind::emulated) << one.claim->name;
}

TEST(Claims, TwoH200s) {
  const ClaimEvidence evidence = two_h200();
  const ClaimAnswer width = answer(evidence, "bandwidth-256");
  EXPECT_EQ(width.verdict, Kind::not_reproduced);
  EXPECT_TRUE(contains(width.reason, "450 GB/s in one direction and 900 in both are not 256; 28.6 times"))
      << width.reason;
  EXPECT_TRUE(contains(width.measured, "18 x 25 = 450")) << width.measured;
  EXPECT_TRUE(contains(width.measured, "328 GB/s (busbw); staged 27.4")) << width.measured;
  const ClaimAnswer latency = answer(evidence, "latency-tenth");
  EXPECT_EQ(latency.verdict, Kind::not_reproduced);
  EXPECT_TRUE(contains(latency.reason, "1.6 times")) << latency.reason;
  const ClaimAnswer lanes = answer(evidence, "lanes-64");
  EXPECT_EQ(lanes.verdict, Kind::not_reproduced);
  EXPECT_TRUE(contains(lanes.reason, "are 36 in one direction, beside 16")) << lanes.reason;
  EXPECT_EQ(answer(evidence, "bandwidth-300").verdict, Kind::not_reproduced);
  EXPECT_EQ(answer(evidence, "joins-cpus").verdict, Kind::not_measurable) << "a virtual machine hides the far ends";
  EXPECT_EQ(answer(evidence, "driver-alone").verdict, Kind::reproduced);
  EXPECT_EQ(answer(evidence, "frameworks-configured").verdict, Kind::not_reproduced);
  EXPECT_EQ(answer(evidence, "larger-models").verdict, Kind::not_reproduced);
  EXPECT_EQ(answer(evidence, "needs-v100").verdict, Kind::not_measurable);
  EXPECT_EQ(answer(evidence, "graphics").verdict, Kind::not_measurable);
}

TEST(Claims, WhatHoldsOfAnEraIsSeenOnItsMachines) {
  const ClaimAnswer five = answer(two(kP100, GpuPath::nvlink), "bandwidth-256");
  EXPECT_EQ(five.verdict, Kind::not_reproduced);
  EXPECT_TRUE(contains(five.reason, "are not 256; 5.08 times PCIe 3.0 x16 are 5")) << five.reason;
  EXPECT_EQ(answer(two(kP100, GpuPath::nvlink), "needs-v100").verdict, Kind::not_reproduced);
  const ClaimAnswer both = answer(two(kV100, GpuPath::nvlink), "bandwidth-300");
  EXPECT_EQ(both.verdict, Kind::not_reproduced);
  EXPECT_TRUE(contains(both.reason, "300 are both directions")) << both.reason;

  GpuNode lanes = kV100;
  lanes.active_nvlinks = 8;
  EXPECT_EQ(answer(two(lanes, GpuPath::nvlink), "lanes-64").verdict, Kind::reproduced);
}

TEST(Claims, RatesAloneReproduceNothing) {
  ClaimEvidence evidence = two(kA100, GpuPath::nvswitch);
  for (GpuNode& gpu : evidence.topology.gpus) gpu.pcie_most = {.generation = 3, .width = 16};
  EXPECT_EQ(answer(evidence, "bandwidth-300").verdict, Kind::not_measurable);
  evidence.nvlink = SweepEnds{.small_us = 14, .large_busbw = 230};
  EXPECT_EQ(answer(evidence, "bandwidth-300").verdict, Kind::reproduced);
  evidence.nvlink->large_busbw = 12;
  EXPECT_EQ(answer(evidence, "bandwidth-300").verdict, Kind::not_reproduced);
}

TEST(Claims, TrainingMustBeProvenAndFastThroughout) {
  ClaimEvidence evidence = two_h200();
  EXPECT_EQ(answer(evidence, "training-2-5").verdict, Kind::reproduced);
  evidence.trainings.push_back({.what = "GPT-2 at 32", .speedup = {1.05, 1.04, 1.06}, .proven = true});
  const ClaimAnswer mixed = answer(evidence, "training-2-5");
  EXPECT_EQ(mixed.verdict, Kind::not_reproduced);
  EXPECT_TRUE(contains(mixed.reason, "VGG-16 at 32 images a GPU 2.39x, but GPT-2 at 32 1.05x")) << mixed.reason;
  evidence.trainings.resize(1);
  evidence.trainings[0].speedup.low = 1.99;
  EXPECT_EQ(answer(evidence, "training-2-5").verdict, Kind::not_reproduced);
  evidence.trainings[0].speedup.low = 2.2;
  evidence.trainings[0].proven = false;
  EXPECT_EQ(answer(evidence, "training-2-5").verdict, Kind::not_measurable);
  // A proven refutation stands, whatever is unproven beside it.
  evidence.trainings.push_back({.what = "GPT-2 at 32", .speedup = {1.05, 1.04, 1.06}, .proven = true});
  EXPECT_EQ(answer(evidence, "training-2-5").verdict, Kind::not_reproduced);
  evidence.trainings[1].speedup = {2.5, 2.4, 2.6};
  EXPECT_EQ(answer(evidence, "training-2-5").verdict, Kind::not_measurable) << "one is proven, one is not";
}

TEST(Claims, NamesThatSayNothing) {
  EXPECT_EQ(answer(two(kH200, GpuPath::nvswitch), "device-names").verdict, Kind::not_measurable);
  ClaimEvidence evidence = two(kA100, GpuPath::nvlink);
  evidence.topology.gpus[1].active_nvlinks = 0;
  EXPECT_EQ(answer(evidence, "device-names").verdict, Kind::not_reproduced);
  evidence.topology.gpus[0].active_nvlinks = 0;
  EXPECT_EQ(answer(evidence, "device-names").verdict, Kind::not_reproduced) << "links that are off";
}

TEST(Claims, FarEndsDecideAboutProcessors) {
  ClaimEvidence evidence = two(kV100, GpuPath::nvlink);
  EXPECT_EQ(answer(evidence, "joins-cpus").verdict, Kind::not_reproduced);
  evidence.topology.gpus[0].cpu_nvlinks = 3;
  EXPECT_EQ(answer(evidence, "joins-cpus").verdict, Kind::reproduced);
}

TEST(Claims, ByItselfMeansNoFaultNoSettingAndCountedBytes) {
  ClaimEvidence evidence = two_h200();
  evidence.topology.nccl_settings = {{"NCCL_P2P_LEVEL", "NVL", "the environment"}};
  EXPECT_EQ(answer(evidence, "driver-alone").verdict, Kind::not_measurable);
  EXPECT_EQ(answer(evidence, "frameworks-configured").verdict, Kind::not_measurable);
  evidence = two_h200();
  evidence.topology.findings = {{TopologyFinding::Kind::fault, "the fabric manager has not set up its NVSwitches", ""}};
  EXPECT_EQ(answer(evidence, "driver-alone").verdict, Kind::not_reproduced);
  evidence = two_h200();
  evidence.nvlink_by_itself = false;
  EXPECT_EQ(answer(evidence, "driver-alone").verdict, Kind::not_measurable);
  EXPECT_EQ(answer(evidence, "frameworks-configured").verdict, Kind::not_measurable);
}

}  // namespace
}  // namespace lockstep
