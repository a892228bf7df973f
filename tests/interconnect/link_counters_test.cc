#include "framework/interconnect/link_counters.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "tests/support/fake_nvml.h"
#include "tests/support/seed.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::fake_h200;
using testing::fake_machine;
using testing::FakeNvml;

constexpr double kGen5 = 63e9;
constexpr std::uint64_t kWrap = std::uint64_t{1} << 32;

NvmlAnswer<std::uint64_t> sample(std::uint64_t value) { return {value, {}}; }

TEST(UnwrappedCounter, WrapsAreUndone) {
  std::mt19937_64 random(testing::test_seed());
  UnwrappedCounter counter(kGen5);
  UnwrappedCounter::Clock::time_point now{};
  const std::uint64_t first = random() % (10 * kWrap);
  std::uint64_t value = first;
  for (int i = 0; i < 2000; ++i) {
    counter.add(sample(value % kWrap), now);
    value += random() % 300'000'000;  // 60 GB/s at most
    now += 5ms;
  }
  counter.add(sample(value % kWrap), now);
  ASSERT_TRUE(counter.total()) << counter.total().why_not;
  EXPECT_EQ(*counter.total(), value - first);
}

TEST(UnwrappedCounter, WideCountersNeedNoUnwrapping) {
  UnwrappedCounter counter(kGen5);
  UnwrappedCounter::Clock::time_point now{};
  counter.add(sample(kWrap - 5), now);
  counter.add(sample(kWrap + 95), now + 1ms);
  counter.add(sample(10 * kWrap), now + 1000ms);
  EXPECT_EQ(*counter.total(), 9 * kWrap + 5);
}

std::string why_not(const std::vector<std::uint64_t>& values, std::chrono::milliseconds period = 5ms) {
  UnwrappedCounter counter(kGen5);
  UnwrappedCounter::Clock::time_point now{};
  for (const std::uint64_t value : values) counter.add(sample(value), std::exchange(now, now + period));
  return counter.total().why_not;
}

TEST(UnwrappedCounter, WhatCannotBeIsNoCount) {
  EXPECT_NE(why_not({2 * kWrap, kWrap}).find("backwards"), std::string::npos);
  EXPECT_NE(why_not({2'000'000'000, 0}).find("jumped"), std::string::npos);  // set back to nothing
  EXPECT_NE(why_not({0, 4'000'000'000}).find("jumped"), std::string::npos);
  EXPECT_NE(why_not({0, 1000}, 80ms).find("too late"), std::string::npos);
  EXPECT_NE(why_not({0, 1000, 2'000'000'000}, 80ms).find("too late"), std::string::npos);
  EXPECT_EQ(why_not({0, 250'000'000, 500'000'000}), "");
  UnwrappedCounter counter(kGen5);
  counter.add({std::nullopt, "not permitted"}, {});
  EXPECT_EQ(counter.total().why_not, "not permitted");
}

TEST(UnwrappedCounter, GoesOnBehindAGap) {
  UnwrappedCounter counter(kGen5);
  UnwrappedCounter::Clock::time_point now{};
  const auto add = [&](std::uint64_t value, std::chrono::milliseconds later) {
    counter.add(sample(value), now += later);
  };
  add(1000, 0ms);
  add(2000, 5ms);
  EXPECT_EQ(counter.least(), counter.most());
  add(1500, 100ms);  // once around, or not at all and set back, or twice
  add(4500, 5ms);
  EXPECT_NE(counter.total().why_not.find("too late"), std::string::npos);
  EXPECT_EQ(counter.least(), 1000 + 3000);
  EXPECT_GE(counter.most(), 1000 + 3000 + 0.1 * kGen5);
  EXPECT_LE(counter.most(), 1000 + 3000 + 0.106 * kGen5);
  counter.add({std::nullopt, "not permitted"}, now);
  EXPECT_EQ(counter.least(), 0);
  EXPECT_EQ(counter.most(), std::numeric_limits<double>::infinity());
}

// What the counters of a GPU with these answers say of the time between start() and stop().
LinkTraffic traffic_of(const nlohmann::json& gpu, std::chrono::milliseconds duration = 0ms,
                       const LinkCountersOptions& options = {}) {
  const FakeNvml fake(fake_machine({fake_h200(7), gpu}));
  const auto counters = make_link_counters(Nvml::open(), gpu["uuid"], options);
  counters->start();
  std::this_thread::sleep_for(duration);
  return counters->stop();
}

nlohmann::json readings(const std::vector<std::uint64_t>& values) { return {{"values", values}}; }

TEST(LinkCounters, NvlinkIsCountedInKib) {
  auto gpu = fake_h200(0);
  // The first reading finds out how this GPU counts.
  gpu["counters"]["138"] = readings({0, 100, 350});
  gpu["counters"]["139"] = readings({0, 1ULL << 40, (1ULL << 40) + 7});
  const LinkTraffic traffic = traffic_of(gpu);
  EXPECT_EQ(*traffic.nvlink_sent, 250u * 1024);
  EXPECT_EQ(*traffic.nvlink_received, 7u * 1024);
  EXPECT_TRUE(traffic.nvlink_active);
  EXPECT_EQ(traffic.disturbance, "");
}

TEST(LinkCounters, LinksAreSummedWhereOnlyTheyCount) {
  auto gpu = fake_h200(0, 3);
  gpu["links"][1]["active"] = false;
  gpu["counters"] = {{"138/0", readings({0, 10, 30})},
                     {"138/2", readings({0, 5, 6})},  // payload in KiB
                     {"202/0", readings({0})},
                     {"204/0", readings({0, 1000, 1500})},
                     {"204/2", readings({0, 0, 1})}};  // bytes, NVLink 5
  const LinkTraffic traffic = traffic_of(gpu);
  EXPECT_EQ(*traffic.nvlink_sent, 21u * 1024);
  EXPECT_EQ(*traffic.nvlink_received, 501u);
}

TEST(LinkCounters, WhatCannotBeReadSaysWhy) {
  auto gpu = fake_h200(0);
  gpu["counters"]["138"] = {{"error", 4}};
  gpu["counters"]["139"] = readings({5000, 5000, 4000});
  gpu["counters"].erase("197");
  const LinkTraffic traffic = traffic_of(gpu);
  EXPECT_EQ(traffic.nvlink_sent.why_not, "not permitted");
  EXPECT_EQ(traffic.nvlink_received.why_not, "the counter went backwards");
  EXPECT_EQ(traffic.pcie_sent.why_not, "not supported");
  EXPECT_TRUE(traffic.pcie_received);
}

TEST(LinkCounters, PcieIsFollowedThroughItsWraps) {
  auto gpu = fake_h200(0);
  gpu["counters"]["197"] = {{"rate", 40e9}, {"wrap_bits", 32}};
  gpu["counters"]["198"] = {{"rate", 20e9}, {"wrap_bits", 32}, {"type", 1}};
  const auto begin = std::chrono::steady_clock::now();
  const LinkTraffic traffic = traffic_of(gpu, 300ms);  // nearly three times around
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!traffic.pcie_sent) {  // a machine that is too busy to sample: it must say so, and not give a number
    EXPECT_NE(traffic.pcie_sent.why_not.find("too late"), std::string::npos) << traffic.pcie_sent.why_not;
    return;
  }
  EXPECT_GE(static_cast<double>(*traffic.pcie_sent), 40e9 * 0.3);
  EXPECT_LE(static_cast<double>(*traffic.pcie_sent), 40e9 * seconds);
}

// To list processes takes the driver time, in which a counter goes around many times.
TEST(LinkCounters, PcieIsFollowedWhileProcessesAreListed) {
  auto gpu = fake_h200(0);
  gpu["counters"]["197"] = gpu["counters"]["198"] = {{"rate", 40e9}, {"wrap_bits", 32}};
  gpu["ms_to_list_processes"] = 300;
  const LinkTraffic traffic = traffic_of(gpu, 700ms);
  EXPECT_LE(traffic.pcie_least_bytes, traffic.pcie_most_bytes);
  EXPECT_GE(traffic.pcie_most_bytes, 2 * 40e9 * 0.7);
  // A busy machine may come late, but not as late as that.
  EXPECT_LT(traffic.pcie_most_bytes - traffic.pcie_least_bytes, 2 * 0.25 * kGen5);
}

TEST(LinkCounters, AGpuWithoutLinksHasNoNvlinkBytes) {
  auto none = fake_h200(0, 0);
  none["counters"].erase("138");
  auto down = fake_h200(0, 4);
  for (auto& link : down["links"]) link["active"] = false;
  down["counters"]["138"] = {{"error", 3}};
  for (const auto& gpu : {none, down}) {
    const LinkTraffic traffic = traffic_of(gpu);
    EXPECT_FALSE(traffic.nvlink_active);
    EXPECT_EQ(*traffic.nvlink_sent, 0u);
  }
  auto hidden = fake_h200(0, 0);  // counts bytes of links that it does not show
  hidden["counters"]["138"] = readings({0, 0, 4});
  EXPECT_EQ(*traffic_of(hidden).nvlink_sent, 4096u);
  auto virtual_gpu = none;
  virtual_gpu["virtualization"] = 2;
  EXPECT_FALSE(traffic_of(virtual_gpu).nvlink_sent);
  auto secret = fake_h200(0);
  secret["refuse"]["nvmlDeviceGetNvLinkState"] = 4;
  EXPECT_TRUE(traffic_of(secret).nvlink_active);  // as far as anybody knows
}

TEST(LinkCounters, OthersOnTheGpuAreNoticed) {
  const auto own = static_cast<unsigned>(::getpid());
  const auto disturbance = [](const std::vector<unsigned>& pids, const LinkCountersOptions& options = {}) {
    auto gpu = fake_h200(0);
    gpu["processes"] = pids;
    return traffic_of(gpu, 0ms, options).disturbance;
  };
  EXPECT_EQ(disturbance({}), "");
  EXPECT_EQ(disturbance({own}), "");
  EXPECT_EQ(disturbance({own, 4711}), "process 4711 is on the GPU too");
  EXPECT_EQ(disturbance({4711}), "");  // this process, as the host of a container counts it
  EXPECT_EQ(disturbance({4711, 4712}), "process 4711 is on the GPU too");
  EXPECT_EQ(disturbance({4711}, {.own_under_other_numbers = 0}), "process 4711 is on the GPU too");
  EXPECT_EQ(disturbance({4711}, {.is_own = [](unsigned pid) { return pid == 4711; }, .own_under_other_numbers = 0}),
            "");

  auto gpu = fake_h200(0);
  gpu["refuse"]["nvmlDeviceGetComputeRunningProcesses_v3"] = 4;
  EXPECT_NE(traffic_of(gpu).disturbance.find("cannot be listed: not permitted"), std::string::npos);
  auto divided = fake_h200(0);
  divided["mig"] = true;
  EXPECT_NE(traffic_of(divided).disturbance.find("MIG"), std::string::npos);
}

TEST(LinkCounters, GpusAreFoundByUuidOrBusId) {
  auto gpu = fake_h200(0);
  gpu["counters"]["138"] = readings({0, 100, 350});
  const FakeNvml fake(fake_machine({fake_h200(7), gpu}));
  for (const char* name : {"0000:19:00.0", "00000000:19:00.0"}) {
    const auto counters = make_link_counters(Nvml::open(), name);
    counters->start();
    EXPECT_EQ(*counters->stop().nvlink_sent, 250u * 1024) << name;
  }
  const auto unknown = make_link_counters(Nvml::open(), "GPU-none");
  unknown->start();
  EXPECT_NE(unknown->stop().nvlink_sent.why_not.find("GPU-none"), std::string::npos);
}

TEST(LinkCounters, WithoutADriverThereIsAReason) {
  const auto counters = make_link_counters(Nvml::open("libnot-there.so"), "GPU-1");
  counters->start();
  const LinkTraffic traffic = counters->stop();
  EXPECT_NE(traffic.nvlink_sent.why_not.find("no NVIDIA driver"), std::string::npos);
  EXPECT_NE(traffic.pcie_received.why_not.find("no NVIDIA driver"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
