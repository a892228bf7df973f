#include "framework/interconnect/link_policy.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "framework/core/error.h"
#include "tests/support/fake_nvml.h"

namespace lockstep {
namespace {

using Values = std::map<std::string, std::string>;

Values values_of(const LinkPolicy& policy) {
  Values values;
  for (const NcclSetting& variable : policy.variables) values[variable.name] = variable.value;
  EXPECT_EQ(values.size(), policy.variables.size());  // none twice
  return values;
}

LinkPolicy policy_with(LinkMode mode, const std::vector<std::string>& environment,
                       NvlinkPresence nvlink = NvlinkPresence::present) {
  return link_policy(mode, nvlink, NcclSettings(environment, {}));
}

constexpr LinkMode kModes[] = {LinkMode::automatic, LinkMode::nvlink, LinkMode::pcie, LinkMode::net};

TEST(LinkPolicy, NamesAreReadAndWritten) {
  for (const LinkMode mode : kModes) EXPECT_EQ(parse_link_mode(link_mode_name(mode)), mode);
  EXPECT_EQ(parse_link_mode("auto"), LinkMode::automatic);
  for (const char* wrong : {"", "AUTO", "pci", "nvlink ", "p2p"}) {
    EXPECT_THROW(parse_link_mode(wrong), std::invalid_argument) << wrong;
  }
}

TEST(LinkPolicy, EachModeSetsAllThatItNeeds) {
  const Values off{{"NCCL_P2P_DISABLE", "1"}, {"NCCL_NVLS_ENABLE", "0"},       {"NCCL_WIN_ENABLE", "0"},
                   {"NCCL_SHM_DISABLE", "0"}, {"NCCL_NET_DISABLE_INTRA", "1"}, {"NCCL_MNNVL_ENABLE", "0"}};
  EXPECT_EQ(values_of(policy_with(LinkMode::automatic, {})), (Values{{"NCCL_NVLS_ENABLE", "0"}}));
  EXPECT_EQ(values_of(policy_with(LinkMode::nvlink, {})),
            (Values{{"NCCL_NVLS_ENABLE", "0"}, {"NCCL_P2P_DISABLE", "0"}}));
  for (const NvlinkPresence nvlink : {NvlinkPresence::present, NvlinkPresence::unknown}) {
    const LinkPolicy pcie = policy_with(LinkMode::pcie, {}, nvlink);
    EXPECT_EQ(values_of(pcie), off);
    EXPECT_EQ(pcie.description, "staged through host memory over PCIe (NCCL SHM), not PCIe peer-to-peer");
  }
  Values net = off;
  net["NCCL_SHM_DISABLE"] = "1";
  net["NCCL_NET_DISABLE_INTRA"] = "0";
  EXPECT_EQ(values_of(policy_with(LinkMode::net, {})), net);
}

TEST(LinkPolicy, WithoutNvlinkPcieKeepsPeerToPeer) {
  const LinkPolicy policy = policy_with(LinkMode::pcie, {"NCCL_P2P_LEVEL=SYS"}, NvlinkPresence::absent);
  EXPECT_FALSE(values_of(policy).contains("NCCL_P2P_DISABLE"));
  EXPECT_EQ(values_of(policy).at("NCCL_NVLS_ENABLE"), "0");
  EXPECT_NE(policy.description, kStagedOverPcie);
  EXPECT_NE(policy.description.find("peer-to-peer where the topology has it"), std::string::npos);
}

TEST(LinkPolicy, MulticastIsTheUsersInEveryModeThatCanHaveIt) {
  for (const LinkMode mode : kModes) {
    EXPECT_EQ(values_of(policy_with(mode, {})).at("NCCL_NVLS_ENABLE"), "0");
    EXPECT_EQ(values_of(policy_with(mode, {"NCCL_NVLS_ENABLE="})).at("NCCL_NVLS_ENABLE"), "0");
  }
  for (const LinkMode mode : {LinkMode::automatic, LinkMode::nvlink}) {
    const LinkPolicy policy = policy_with(mode, {"NCCL_NVLS_ENABLE=1"});
    EXPECT_EQ(values_of(policy).at("NCCL_NVLS_ENABLE"), "1");
    EXPECT_EQ(policy.variables.back().source, "the environment");
  }
}

struct Contradiction {
  LinkMode mode;
  std::string setting;
};

TEST(LinkPolicy, ContradictionsNameVariablePlaceAndMode) {
  const Contradiction cases[] = {
      {LinkMode::nvlink, "NCCL_P2P_DISABLE=1"},    {LinkMode::nvlink, "NCCL_P2P_DISABLE=0x1"},
      {LinkMode::nvlink, "NCCL_HOSTID=a"},         {LinkMode::pcie, "NCCL_HOSTID=a"},
      {LinkMode::nvlink, "NCCL_P2P_LEVEL=LOC"},    {LinkMode::nvlink, "NCCL_P2P_LEVEL=0"},
      {LinkMode::pcie, "NCCL_P2P_DISABLE=0"},      {LinkMode::pcie, "NCCL_P2P_DISABLE=yes"},
      {LinkMode::pcie, "NCCL_P2P_DISABLE=2"},      {LinkMode::pcie, "NCCL_P2P_LEVEL=PXB"},
      {LinkMode::pcie, "NCCL_P2P_LEVEL=NVL"},      {LinkMode::pcie, "NCCL_NVLS_ENABLE=1"},
      {LinkMode::pcie, "NCCL_NVLS_ENABLE=2"},      {LinkMode::pcie, "NCCL_WIN_ENABLE=1"},
      {LinkMode::pcie, "NCCL_SHM_DISABLE=1"},      {LinkMode::pcie, "NCCL_NET_DISABLE_INTRA=0"},
      {LinkMode::pcie, "NCCL_ALGO=Ring,NVLSTree"}, {LinkMode::net, "NCCL_P2P_LEVEL=SYS"},
      {LinkMode::net, "NCCL_SHM_DISABLE=0"},       {LinkMode::net, "NCCL_NET_DISABLE_INTRA=1"},
      {LinkMode::net, "NCCL_MNNVL_ENABLE=2"},
  };
  for (const Contradiction& contradiction : cases) {
    try {
      policy_with(contradiction.mode, {contradiction.setting});
      ADD_FAILURE() << contradiction.setting;
    } catch (const LinkContradiction& error) {
      const std::string text = error.what();
      for (const std::string& part : {"link mode " + std::string(link_mode_name(contradiction.mode)),
                                      contradiction.setting + " from the environment"}) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
      }
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }
}

TEST(LinkPolicy, SettingsThatAgreeOrDoNotMatterAreKept) {
  EXPECT_NO_THROW(policy_with(LinkMode::pcie, {"NCCL_P2P_DISABLE=1", "NCCL_P2P_LEVEL=PXB"}));  // the first goes before
  EXPECT_NO_THROW(policy_with(LinkMode::pcie, {"NCCL_P2P_LEVEL=LOC", "NCCL_ALGO=^NVLS", "NCCL_DEBUG=INFO"}));
  EXPECT_NO_THROW(policy_with(LinkMode::nvlink, {"NCCL_P2P_LEVEL=NVL", "NCCL_SHM_DISABLE=1", "NCCL_P2P_DISABLE=2"}));
  EXPECT_NO_THROW(policy_with(LinkMode::automatic, {"NCCL_P2P_DISABLE=1"}));
  EXPECT_EQ(values_of(policy_with(LinkMode::pcie, {"NCCL_P2P_DISABLE=0x1"})).at("NCCL_P2P_DISABLE"), "0x1");
}

TEST(LinkPolicy, AConfFileIsNamed) {
  const std::string file = ::testing::TempDir() + "/link_policy.conf";
  std::ofstream(file) << "NCCL_P2P_DISABLE=0\n";
  try {
    link_policy(LinkMode::pcie, NvlinkPresence::present, NcclSettings({}, {file}));
    ADD_FAILURE();
  } catch (const LinkContradiction& error) {
    EXPECT_NE(std::string(error.what()).find(file), std::string::npos) << error.what();
  }
  EXPECT_EQ(link_policy(LinkMode::nvlink, NvlinkPresence::present, NcclSettings({}, {file})).variables.front().source,
            file);
}

TEST(LinkPolicy, OneCallSetsTheProcess) {
  for (const char* name : {"NCCL_P2P_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_SHM_DISABLE"}) ::unsetenv(name);
  {
    const testing::FakeNvml nvml(testing::fake_machine({testing::fake_h200(0), testing::fake_h200(1)}));
    EXPECT_EQ(apply_link_mode(LinkMode::pcie).description, kStagedOverPcie);
  }
  EXPECT_STREQ(std::getenv("NCCL_P2P_DISABLE"), "1");
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
  EXPECT_THROW(apply_link_mode(LinkMode::nvlink), LinkContradiction);  // what is set stays
  // A rank finds them in its environment, and knows whose they are.
  for (const auto& variable : link_policy(LinkMode::pcie).variables) EXPECT_EQ(variable.source, kSetByLockstep);
  ::setenv("NCCL_WIN_ENABLE", "0x0", 1);
  for (const auto& variable : link_policy(LinkMode::pcie).variables) {
    EXPECT_EQ(variable.source == kSetByLockstep, variable.name != "NCCL_WIN_ENABLE") << variable.name;
  }
  ::unsetenv("LOCKSTEP_LINK_VARIABLES");
  for (const auto& variable : policy_with(LinkMode::pcie, {}).variables) ::unsetenv(variable.name.c_str());
}

TEST(LinkPolicy, RanksThatShareGpusHaveNoLinkBetweenThem) {
  ::setenv("LOCKSTEP_SHARE_GPUS", "1", 1);
  for (const LinkMode mode : {LinkMode::nvlink, LinkMode::pcie}) {
    EXPECT_THROW(link_policy(mode), std::invalid_argument) << link_mode_name(mode);
  }
  EXPECT_NO_THROW(link_policy(LinkMode::net));
  ::unsetenv("LOCKSTEP_SHARE_GPUS");
}

TEST(LinkPolicy, PcieIsTheTopologysWhereTheDriverTellsOfNoNvlink) {
  const testing::FakeNvml nvml(testing::fake_machine({testing::fake_h200(0, 0), testing::fake_h200(1, 0)}));
  EXPECT_EQ(link_policy(LinkMode::pcie).description,
            "over PCIe: peer-to-peer where the topology has it, else staged through host memory");
}

}  // namespace
}  // namespace lockstep
