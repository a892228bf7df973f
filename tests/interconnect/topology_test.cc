#include "framework/interconnect/topology.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/fake_nvml.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::fake_h200;
using testing::fake_machine;
using testing::FakeNvml;

// A host whose files are a test's.
class TopologyTest : public ::testing::Test {
 protected:
  void SetUp() override { write("dev/shm/there", ""); }

  void write(const std::string& file, const std::string& text) {
    fs::create_directories(fs::path(root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }

  Topology read(const json& machine, const std::vector<std::string>& environment = {}) {
    const FakeNvml fake(machine);
    return read_topology({.nvml = Nvml::open(), .nccl = NcclSettings(environment, {}), .root = root_.path()});
  }

  TemporaryDirectory root_;
};

const TopologyFinding* finding(const Topology& topology, const std::string& text) {
  for (const TopologyFinding& one : topology.findings) {
    if ((one.what + one.remedy).find(text) != std::string::npos) return &one;
  }
  return nullptr;
}

TEST_F(TopologyTest, GpusBehindSwitchesReachEachOtherAtFullRate) {
  write("sys/bus/pci/devices/0000:29:00.0/numa_node", "1\n");
  const Topology topology = read(fake_machine({fake_h200(0), fake_h200(1), fake_h200(2)}));
  ASSERT_EQ(topology.gpus.size(), 3u);
  ASSERT_EQ(topology.pairs.size(), 3u);
  EXPECT_EQ(topology.driver, "580.95.05");
  const GpuNode& gpu = topology.gpus[1];
  EXPECT_EQ(gpu.nvlink_generation, 4);
  EXPECT_EQ(gpu.active_nvlinks, 18);
  EXPECT_EQ(gpu.numa_node, 1);
  EXPECT_EQ(topology.gpus[0].numa_node, -1);
  for (const GpuPair& pair : topology.pairs) {
    EXPECT_EQ(pair.path, GpuPath::nvswitch);
    EXPECT_EQ(pair.nvlinks, 18);
    EXPECT_DOUBLE_EQ(pair.peak_gb_s, 450);
    EXPECT_NEAR(pair.expected_gb_s, 396, 1);
    EXPECT_EQ(pair.peer_access, true);
  }
  EXPECT_EQ(topology.unlinked_pairs(), "");
  EXPECT_FALSE(topology.has_fault());
}

TEST_F(TopologyTest, DirectLinksJoinWhomTheyReach) {
  auto machine =
      fake_machine({fake_h200(0, 4, "00000000:29:00.0"), fake_h200(1, 4, "00000000:19:00.0"), fake_h200(2, 0)});
  for (auto& gpu : machine["gpus"]) gpu["compute_capability"] = 80;
  machine["gpus"][0]["ancestor"]["2"] = 10;
  machine["gpus"][1]["ancestor"]["2"] = 40;
  const Topology topology = read(machine);
  EXPECT_EQ(topology.pairs[0].path, GpuPath::nvlink);
  EXPECT_DOUBLE_EQ(topology.pairs[0].peak_gb_s, 100);
  EXPECT_EQ(topology.pairs[1].path, GpuPath::pcie_p2p);
  EXPECT_NEAR(topology.pairs[1].peak_gb_s, 63, 0.1);
  EXPECT_NEAR(topology.pairs[1].expected_gb_s, 55.4, 0.5);
  EXPECT_EQ(topology.pairs[2].path, GpuPath::staged);
  EXPECT_NEAR(topology.pairs[2].expected_gb_s, 37, 1.5);
  ASSERT_NE(finding(topology, "only some pairs"), nullptr);
  EXPECT_NE(finding(topology, "only some pairs")->what.find("0-2, 1-2"), std::string::npos);
  EXPECT_FALSE(topology.has_fault());
}

TEST_F(TopologyTest, PeaksAreThoseOfTheGpusInUse) {
  auto machine = fake_machine({fake_h200(0), fake_h200(1), fake_h200(2, 0), fake_h200(3)});
  for (const int link : {2, 3, 17}) machine["gpus"][3]["links"][static_cast<std::size_t>(link)]["active"] = false;
  machine["gpus"][2]["pcie"] = {3, 16, 3, 16};
  const Topology topology = read(machine);
  const auto uuids = [&](std::vector<std::size_t> gpus) {
    std::vector<std::string> texts;
    for (const std::size_t gpu : gpus) texts.push_back(topology.gpus[gpu].uuid);
    return texts;
  };
  EXPECT_DOUBLE_EQ(topology.nvlink_peak_gb_s(uuids({0, 1})), 450);
  EXPECT_DOUBLE_EQ(topology.nvlink_peak_gb_s(uuids({0, 1, 3})), 375);
  EXPECT_DOUBLE_EQ(topology.nvlink_peak_gb_s(uuids({0, 2})), 0) << "no link joins them";
  EXPECT_DOUBLE_EQ(topology.nvlink_peak_gb_s({}), 0);
  EXPECT_NEAR(topology.pcie_peak_gb_s(uuids({0, 1})), 63, 0.1);
  EXPECT_NEAR(topology.pcie_peak_gb_s(uuids({0, 2})), 15.75, 0.1);
  EXPECT_EQ(topology.pcie_peak_gb_s({"GPU-unknown"}), 0);
}

TEST_F(TopologyTest, FarEndsThatAVirtualMachineHidesAreTakenForASwitch) {
  write("proc/cpuinfo", "flags : fpu hypervisor lahf_lm\n");
  write("sys/class/dmi/id/product_name", "KVM\n");
  const Topology topology = read(fake_machine({fake_h200(0, 18, "hidden"), fake_h200(1, 18, "hidden")}));
  EXPECT_EQ(topology.pairs[0].path, GpuPath::nvswitch);
  EXPECT_EQ(topology.virtual_machine, "KVM");
  EXPECT_NE(finding(topology, "trust counters"), nullptr);
}

TEST_F(TopologyTest, LinksToProcessorsAreCounted) {
  auto machine = fake_machine({fake_h200(0, 6, "cpu"), fake_h200(1, 6, "cpu")});
  machine["gpus"][0]["links"][0]["peer"] = "00000000:29:00.0";
  machine["gpus"][1]["links"][0]["peer"] = "00000000:19:00.0";
  machine["gpus"][1]["links"][5]["active"] = false;
  const Topology topology = read(machine);
  EXPECT_EQ(topology.gpus[0].cpu_nvlinks, 5);
  EXPECT_EQ(topology.gpus[1].cpu_nvlinks, 4);
  EXPECT_EQ(topology.pairs[0].path, GpuPath::nvlink);
  EXPECT_EQ(topology.pairs[0].nvlinks, 1);
}

TEST_F(TopologyTest, PartialLinksAreAFault) {
  auto machine = fake_machine({fake_h200(0), fake_h200(1)});
  for (const int link : {2, 3, 17}) machine["gpus"][1]["links"][static_cast<std::size_t>(link)]["active"] = false;
  const Topology topology = read(machine);
  EXPECT_TRUE(topology.has_fault());
  EXPECT_NE(finding(topology, "15 of 18 NVLinks are active"), nullptr);
  EXPECT_EQ(topology.pairs[0].nvlinks, 15);
  EXPECT_DOUBLE_EQ(topology.pairs[0].peak_gb_s, 375);
}

TEST_F(TopologyTest, BridgedCardsMayAllLeaveSomeLinksUnused) {
  auto machine = fake_machine({fake_h200(0, 18, "00000000:29:00.0"), fake_h200(1, 18, "00000000:19:00.0")});
  for (auto& gpu : machine["gpus"]) {
    for (std::size_t link = 12; link < 18; ++link) gpu["links"][link]["active"] = false;
  }
  const Topology both = read(machine);
  EXPECT_FALSE(both.has_fault());
  EXPECT_DOUBLE_EQ(both.pairs[0].peak_gb_s, 300);
  machine["gpus"][1]["links"][0]["active"] = false;
  EXPECT_TRUE(read(machine).has_fault());
}

TEST_F(TopologyTest, AFabricThatIsNotSetUpIsAFault) {
  auto machine = fake_machine({fake_h200(0), fake_h200(1)});
  machine["gpus"][0]["fabric_state"] = 1;
  const Topology topology = read(machine);
  EXPECT_TRUE(topology.has_fault());
  ASSERT_NE(finding(topology, "fabric manager"), nullptr);
  EXPECT_NE(finding(topology, "fabric manager")->remedy.find("systemctl status"), std::string::npos);
}

TEST_F(TopologyTest, LinkedGpusWithoutPeerAccessAreAFaultWithTheDriversReason) {
  auto machine = fake_machine({fake_h200(0), fake_h200(1)});
  machine["gpus"][0]["p2p"]["1"] = {{"0", 4}};
  const Topology topology = read(machine);
  EXPECT_TRUE(topology.has_fault());
  EXPECT_NE(finding(topology, "registry key"), nullptr);
  machine["gpus"][0]["refuse"]["nvmlDeviceGetP2PStatus"] = 3;
  EXPECT_FALSE(read(machine).has_fault());  // the driver does not say
}

TEST_F(TopologyTest, WhatTheDriverDoesNotTellIsNamed) {
  auto machine = fake_machine({fake_h200(0), fake_h200(1), fake_h200(2)});
  machine["gpus"][0]["refuse"]["nvmlDeviceGetNvLinkState"] = 999;
  const Topology silent = read(machine);
  EXPECT_FALSE(silent.has_fault());
  const TopologyFinding* unknown = finding(silent, "its NVLinks cannot be read: NVML error 999");
  ASSERT_NE(unknown, nullptr);
  EXPECT_EQ(unknown->kind, TopologyFinding::Kind::warning);

  for (const int status : {15, 4}) {  // lost; no permission
    auto without = fake_machine({fake_h200(0), fake_h200(1)});
    without["gpus"][1]["refuse"]["nvmlDeviceGetHandleByIndex_v2"] = status;
    const Topology topology = read(without);
    EXPECT_EQ(topology.gpus.size(), 1u);
    ASSERT_NE(finding(topology, "GPU 1 of the driver is not given to this process"), nullptr) << status;
    EXPECT_EQ(topology.has_fault(), status == 15);
  }
}

TEST_F(TopologyTest, SlowPcieMigAndOthersAreNamed) {
  auto machine = fake_machine({fake_h200(0, 0), fake_h200(1, 0)});
  machine["gpus"][0]["pcie"] = {1, 8, 5, 16};
  machine["gpus"][1]["mig"] = true;
  machine["gpus"][1]["processes"] = {11, 12};
  const Topology topology = read(machine);
  EXPECT_NE(finding(topology, "8 of 16 lanes"), nullptr);
  EXPECT_NE(finding(topology, "generation 1 of 5"), nullptr);
  EXPECT_NE(finding(topology, "MIG"), nullptr);
  EXPECT_NE(finding(topology, "process 11, 12"), nullptr);
  EXPECT_EQ(topology.unlinked_pairs(), "0-1");
}

TEST_F(TopologyTest, SettingsThatLimitAreNamedWithTheirPlace) {
  const Topology topology = read(fake_machine({fake_h200(0), fake_h200(1)}), {"NCCL_P2P_LEVEL=LOC", "NCCL_DEBUG=INFO"});
  EXPECT_EQ(topology.nccl_settings.size(), 2u);
  ASSERT_NE(finding(topology, "NCCL_P2P_LEVEL=LOC"), nullptr);
  EXPECT_NE(finding(topology, "NCCL_P2P_LEVEL=LOC")->what.find("the environment"), std::string::npos);
  EXPECT_EQ(finding(topology, "NCCL_DEBUG"), nullptr);
}

TEST_F(TopologyTest, SharedMemoryIsComparedWithTheNeed) {
  const Topology topology = read(fake_machine(std::vector<json>(8, fake_h200(0))));
  EXPECT_GT(topology.shm_bytes, 0u);
  EXPECT_EQ(topology.shm_need_bytes, 8u * 8 * 9'634'816);
  fs::remove_all(root_ / "dev");
  EXPECT_NE(finding(read(fake_machine({fake_h200(0), fake_h200(1)})), "--shm-size=1g"), nullptr);
}

TEST_F(TopologyTest, ContainersAreSeen) {
  write(".dockerenv", "");
  const Topology topology = read(fake_machine({fake_h200(0)}));
  EXPECT_EQ(topology.container, "/.dockerenv is there");
  EXPECT_NE(finding(topology, "one GPU in a container"), nullptr);
}

TEST_F(TopologyTest, NoGpuIsAMachineToo) {
  const TopologySources sources{
      .nvml = Nvml::open("libnot-there.so"), .nccl = NcclSettings({}, {}), .root = root_.path()};
  const Topology topology = read_topology(sources);
  EXPECT_TRUE(topology.gpus.empty());
  EXPECT_NE(topology.why_no_gpus.find("no NVIDIA driver"), std::string::npos);
  EXPECT_FALSE(topology.has_fault());
  ASSERT_FALSE(topology.findings.empty());
  EXPECT_NE(topology.findings[0].remedy.find("CPU ranks"), std::string::npos);
  // But where the kernel has the driver, its library should be there as well.
  write("proc/driver/nvidia/version", "NVRM version: 580\n");
  EXPECT_TRUE(read_topology(sources).has_fault());
}

TEST_F(TopologyTest, ADriverThatAnswersNothingGivesGpusWithoutFigures) {
  const Topology topology = read(fake_machine({json::object(), json::object()}));
  ASSERT_EQ(topology.gpus.size(), 2u);
  EXPECT_EQ(topology.gpus[0].compute_capability, 0);
  EXPECT_EQ(topology.pairs[0].path, GpuPath::staged);
  EXPECT_EQ(topology.pairs[0].peak_gb_s, 0.0);
}

TEST_F(TopologyTest, AbsurdAnswersAreSurvived) {
  auto machine = fake_machine({fake_h200(0), fake_h200(1, 3, "not a bus id")});
  for (auto& gpu : machine["gpus"]) {
    gpu["pcie"] = {99, 4'000'000'000, 7, 4'294'967'295};
    gpu["compute_capability"] = -5;
    gpu["fabric_state"] = 200;
    gpu["virtualization"] = 77;
    gpu["ancestor"] = {{"0", 33}, {"1", 33}};
    gpu["p2p"] = {{"0", {{"0", 99}}}, {"1", {{"0", -1}}}};
    gpu["uuid"] = std::string(90, 'x');
    gpu["name"] = std::string(200, 'x');  // longer than NVML's longest
  }
  const Topology topology = read(machine);
  ASSERT_EQ(topology.pairs.size(), 1u);
  EXPECT_EQ(topology.pairs[0].peak_gb_s, 0.0);
  EXPECT_FALSE(topology.pairs[0].pcie_path);
  EXPECT_EQ(topology.pairs[0].peer_access, false);
  EXPECT_EQ(topology.gpus[0].name, "GPU of an unknown name");
}

TEST(PcieLink, PeaksAreTheSpecifications) {
  EXPECT_NEAR((PcieLink{3, 16}.peak_gb_s()), 15.75, 0.02);
  EXPECT_NEAR((PcieLink{4, 16}.peak_gb_s()), 31.5, 0.02);
  EXPECT_NEAR((PcieLink{5, 16}.peak_gb_s()), 63, 0.02);
  EXPECT_NEAR((PcieLink{6, 16}.peak_gb_s()), 121, 0.1);
  EXPECT_NEAR((PcieLink{5, 8}.peak_gb_s()), 31.5, 0.02);
  EXPECT_EQ((PcieLink{0, 16}.peak_gb_s()), 0);
  EXPECT_EQ((PcieLink{9, 16}.peak_gb_s()), 0);
  EXPECT_EQ((PcieLink{5, -16}.peak_gb_s()), 0);
}

}  // namespace
}  // namespace lockstep
