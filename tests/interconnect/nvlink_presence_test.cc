#include "framework/interconnect/nvlink_presence.h"

#include <gtest/gtest.h>

#include "tests/support/fake_nvml.h"

namespace lockstep {
namespace {

TEST(NvlinkPresence, IsWhatTheDriverTells) {
  {
    const testing::FakeNvml nvml(testing::fake_machine({testing::fake_h200(0), testing::fake_h200(1)}));
    EXPECT_EQ(nvlink_presence(), NvlinkPresence::present);
  }
  {
    const testing::FakeNvml nvml(testing::fake_machine({testing::fake_h200(0, 0), testing::fake_h200(1, 0)}));
    EXPECT_EQ(nvlink_presence(), NvlinkPresence::absent);
  }
  {
    auto gpu = testing::fake_h200(0, 0);
    gpu["virtualization"] = 2;
    const testing::FakeNvml nvml(testing::fake_machine({gpu}));
    EXPECT_EQ(nvlink_presence(), NvlinkPresence::unknown);
  }
  {
    auto gpu = testing::fake_h200(0);
    gpu["refuse"]["nvmlDeviceGetNvLinkState"] = 4;
    const testing::FakeNvml nvml(testing::fake_machine({gpu}));
    EXPECT_EQ(nvlink_presence(), NvlinkPresence::unknown);
  }
}

}  // namespace
}  // namespace lockstep
