#include "framework/interconnect/visible_gpus.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <vector>

#include "tests/support/fake_nvml.h"

namespace lockstep {
namespace {

std::vector<int> visible(const char* list, const std::vector<nlohmann::json>& gpus) {
  const testing::FakeNvml fake(testing::fake_machine(gpus));
  if (list != nullptr) {
    ::setenv("CUDA_VISIBLE_DEVICES", list, 1);
  } else {
    ::unsetenv("CUDA_VISIBLE_DEVICES");
  }
  const auto nvml = Nvml::open();
  const std::vector<int> result = visible_gpus(**nvml);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  return result;
}

TEST(VisibleGpus, AreThoseOfTheVariableInItsOrder) {
  const std::vector gpus{testing::fake_h200(0), testing::fake_h200(1), testing::fake_h200(2)};
  using List = std::vector<int>;
  EXPECT_EQ(visible(nullptr, gpus), (List{0, 1, 2}));
  EXPECT_EQ(visible("2,0", gpus), (List{2, 0}));
  EXPECT_EQ(visible(" 1 , 2", gpus), (List{1, 2}));
  EXPECT_EQ(visible("GPU-00000000-0000-0000-0000-000000000001,0", gpus), (List{1, 0}));
  EXPECT_EQ(visible("", gpus), List{});
  EXPECT_EQ(visible("0,7,1", gpus), List{0});
  EXPECT_EQ(visible("-1", gpus), List{});
  EXPECT_EQ(visible("MIG-5", gpus), List{});
  EXPECT_EQ(visible("1x,0", gpus), List{});
}

TEST(VisibleGpus, AreAllWhereTheOrderIsUnknown) {
  std::vector gpus{testing::fake_h200(0), testing::fake_h200(1)};
  gpus[1]["name"] = "NVIDIA T4";
  EXPECT_EQ(visible("1", gpus), (std::vector<int>{0, 1}));
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  EXPECT_EQ(visible("1", gpus), std::vector<int>{1});
  ::unsetenv("CUDA_DEVICE_ORDER");
}

}  // namespace
}  // namespace lockstep
