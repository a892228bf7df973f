#include "framework/interconnect/nccl_log.h"

#include <gtest/gtest.h>

#include <random>
#include <sstream>
#include <string>

#include "tests/support/seed.h"

namespace lockstep {
namespace {

// Lines in the form that NCCL 2.18 to 2.30 writes.
const char* const kNvlink =
    "host:4711:4711 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"
    "host:4711:4801 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"
    "host:4711:4801 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    "host:4711:4801 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p "
    "channels per peer\n";
const char* const kStaged =
    "host:9:9 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct\n"
    "host:9:9 [1] NCCL INFO Channel 01 : 1[1] -> 0[0] via SHM/direct\n"
    "host:9:9 [1] NCCL INFO Using network Socket\n";
const char* const kNet =
    "h:9:9 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0\n"
    "h:9:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/3(5)/GDRDMA\n";
const char* const kNvls =
    "h:9:9 [0] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels\n";

NcclLog parse(const std::string& text) {
  std::istringstream stream(text);
  NcclLog log;
  log.read(stream);
  return log;
}

TEST(NcclLog, ConnectionsAreCountedByTransport) {
  const NcclLog nvlink = parse(kNvlink);
  EXPECT_EQ(nvlink.version, "2.28.9+cuda13.0");
  EXPECT_EQ(nvlink.p2p, 2);
  EXPECT_EQ(nvlink.nvls_channels, 0);
  const NcclLog staged = parse(kStaged);
  EXPECT_EQ(staged.shm, 2);
  EXPECT_EQ(staged.net, 0);  // the plug-in's name is no connection
  const NcclLog net = parse(kNet);
  EXPECT_EQ(net.net, 2);
  EXPECT_EQ(net.net_name, "IB");
  EXPECT_EQ(parse(std::string(kNvls) + kNvlink).nvls_channels, 16);
  EXPECT_TRUE(parse("").empty());
  EXPECT_TRUE(staged.avoids_nvlink());
  EXPECT_FALSE(nvlink.avoids_nvlink());
  EXPECT_FALSE(parse(std::string(kStaged) + kNvls).avoids_nvlink());
  EXPECT_FALSE(parse("").avoids_nvlink());
}

TEST(NcclLog, ItSpeaksAgainstAModeThatItDoesNotShow) {
  const auto against = [](LinkMode mode, const std::string& text, NvlinkPresence nvlink = NvlinkPresence::present) {
    return !contradiction(link_policy(mode, nvlink, NcclSettings({}, {})), parse(text)).empty();
  };
  EXPECT_FALSE(against(LinkMode::nvlink, kNvlink));
  EXPECT_FALSE(against(LinkMode::pcie, kStaged));
  EXPECT_TRUE(against(LinkMode::pcie, kNvlink));
  EXPECT_FALSE(against(LinkMode::pcie, kNvlink, NvlinkPresence::absent));  // peer-to-peer over PCIe
  EXPECT_TRUE(against(LinkMode::pcie, kNet));
  EXPECT_TRUE(against(LinkMode::pcie, kNvls));
  EXPECT_FALSE(against(LinkMode::net, kNet));
  EXPECT_TRUE(against(LinkMode::net, kStaged));
  EXPECT_FALSE(against(LinkMode::automatic, std::string(kNvlink) + kStaged + kNet + kNvls));
}

TEST(NcclLog, BrokenTextIsSurvived) {
  const std::string whole = std::string(kNvlink) + kStaged + kNet + kNvls;
  std::mt19937 random(static_cast<unsigned>(testing::test_seed()));
  for (int i = 0; i < 2000; ++i) {
    std::string text = whole.substr(0, random() % whole.size());
    for (int flips = static_cast<int>(random() % 20); flips > 0 && !text.empty(); --flips) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    const NcclLog log = parse(text);
    EXPECT_LE(log.p2p + log.shm + log.net, 6);
    EXPECT_GE(log.nvls_channels, 0);
  }
  EXPECT_EQ(parse("NCCL INFO 99999999999999999999 nvls channels").nvls_channels, 0);
  EXPECT_EQ(parse("NCCL INFO  nvls channels").nvls_channels, 0);
  EXPECT_TRUE(parse("Channel 00 : 0 -> 1 via SHM/direct").empty());  // a program's own words
}

}  // namespace
}  // namespace lockstep
