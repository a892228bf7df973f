#include "framework/interconnect/nvml.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/fake_nvml.h"

namespace lockstep {
namespace {

using testing::fake_h200;
using testing::fake_machine;
using testing::FakeNvml;

TEST(Nvml, WithoutADriverItSaysSo) {
  const auto nvml = Nvml::open("libnot-there.so.1");
  EXPECT_FALSE(nvml);
  EXPECT_NE(nvml.why_not.find("no NVIDIA driver here"), std::string::npos) << nvml.why_not;
}

TEST(Nvml, ALibraryThatIsNoneIsRefused) {
  const auto nvml = Nvml::open("libm.so.6");
  EXPECT_FALSE(nvml);
  EXPECT_NE(nvml.why_not.find("cannot tell"), std::string::npos) << nvml.why_not;
}

TEST(Nvml, ADriverThatDoesNotAnswerIsNamed) {
  const FakeNvml fake(nlohmann::json{{"init", 18}});
  const auto nvml = Nvml::open();
  EXPECT_FALSE(nvml);
  EXPECT_NE(nvml.why_not.find("different versions"), std::string::npos) << nvml.why_not;
}

TEST(Nvml, AnswersAreRead) {
  const FakeNvml fake(fake_machine({fake_h200(0), fake_h200(1, 4, "00000000:19:00.0")}));
  const auto opened = Nvml::open();
  ASSERT_TRUE(opened) << opened.why_not;
  const Nvml& nvml = **opened;
  ASSERT_EQ(nvml.gpu_count(), 2);
  EXPECT_EQ(*nvml.driver_version(), "580.95.05");
  EXPECT_EQ(*nvml.cuda_version(), 13000);
  EXPECT_EQ(*nvml.name(1), "NVIDIA H200");
  EXPECT_EQ(*nvml.uuid(1), "GPU-00000000-0000-0000-0000-000000000001");
  EXPECT_EQ(*nvml.pci_bus_id(1), "0000:29:00.0");
  EXPECT_EQ(*nvml.compute_capability(0), 90);
  EXPECT_EQ(*nvml.pcie_generation(0), 5);
  EXPECT_EQ(*nvml.max_pcie_width(0), 16);
  EXPECT_EQ(*nvml.fabric_state(0), 3);
  EXPECT_EQ(nvml.nvlinks(0)->size(), 18u);
  EXPECT_EQ(*nvml.nvlink_peer(0, 0), NvlinkPeer::nvswitch);
  EXPECT_EQ(*nvml.nvlink_peer(1, 3), NvlinkPeer::gpu);
  EXPECT_EQ(*nvml.nvlink_peer_bus_id(1, 3), "0000:19:00.0");
  EXPECT_EQ(*nvml.read(1, kNvlinkSentKib), 1001u);
}

TEST(Nvml, WhatIsRefusedIsNoZero) {
  auto gpu = fake_h200(0);
  gpu["counters"] = {{"138", {{"error", 4}}}, {"139", {{"values", {7}}, {"type", 0}}}};
  gpu["refuse"] = {{"nvmlDeviceGetComputeRunningProcesses_v3", 4}, {"nvmlDeviceGetNvLinkState", 15}};
  gpu.erase("pcie");
  const FakeNvml fake(fake_machine({gpu}));
  const auto nvml = Nvml::open();
  ASSERT_TRUE(nvml);
  EXPECT_EQ((*nvml)->read(0, kNvlinkSentKib).why_not, "not permitted");
  EXPECT_EQ((*nvml)->read(0, kNvlinkReceivedKib).why_not, "no count (type 0)");
  EXPECT_EQ((*nvml)->read(0, kPcieSentBytes).why_not, "not supported");
  EXPECT_EQ((*nvml)->compute_processes(0).why_not, "not permitted");
  EXPECT_EQ((*nvml)->nvlinks(0).why_not, "the GPU is lost");
  EXPECT_FALSE((*nvml)->pcie_generation(0));
}

TEST(Nvml, ManyProcessesAreListed) {
  auto gpu = fake_h200(0);
  for (int pid = 1; pid <= 500; ++pid) gpu["processes"].push_back(pid);
  const FakeNvml fake(fake_machine({gpu}));
  const auto nvml = Nvml::open();
  ASSERT_TRUE(nvml);
  EXPECT_EQ((*nvml)->compute_processes(0)->size(), 500u);
}

TEST(Nvml, AGpuThatIsLostIsLeftOut) {
  auto lost = fake_h200(0);
  lost["refuse"]["nvmlDeviceGetHandleByIndex_v2"] = 15;
  const FakeNvml fake(fake_machine({lost, fake_h200(1)}));
  const auto nvml = Nvml::open();
  ASSERT_TRUE(nvml);
  ASSERT_EQ((*nvml)->gpu_count(), 1);
  EXPECT_EQ(*(*nvml)->pci_bus_id(0), "0000:29:00.0");
}

TEST(Nvml, BusIdsHaveOneForm) {
  EXPECT_EQ(canonical_bus_id("00000000:1A:00.0"), "0000:1a:00.0");
  EXPECT_EQ(canonical_bus_id("0000:1a:00.0"), "0000:1a:00.0");
  EXPECT_EQ(canonical_bus_id("00010000:1a:00.0"), "00010000:1a:00.0");  // a domain of its own
  EXPECT_EQ(canonical_bus_id(""), "");
}

}  // namespace
}  // namespace lockstep
