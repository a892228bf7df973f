#include "framework/interconnect/published_links.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace lockstep {
namespace {

TEST(PublishedLinks, GiveWhatWasMeasured) {
  const auto us = [](const char* link, std::int64_t bytes) {
    return cost_model_of(published_link(link)).all_reduce_us(bytes, 2);
  };
  // Two H200s: 300 GB/s at 256 MiB and 14 us over NVLink; 27.4 GB/s and 22 us staged over PCIe 5.
  EXPECT_NEAR(us("nvlink4", 1 << 28), (1 << 28) / 300e3, 0.06 * (1 << 28) / 300e3);
  EXPECT_NEAR(us("pcie5", 1 << 28), (1 << 28) / 27.4e3, 0.03 * (1 << 28) / 27.4e3);
  EXPECT_NEAR(us("nvlink4", 1024), 14, 0.1);
  EXPECT_NEAR(us("pcie5", 1024), 22, 0.2);
}

TEST(PublishedLinks, NoneIsFasterThanItsSpecification) {
  for (const PublishedLink& link : published_links()) {
    EXPECT_LT(link.busbw, link.peak) << link.name;
    EXPECT_NEAR(cost_model_of(link).peak_busbw(), link.busbw, 1e-9) << link.name;
    EXPECT_EQ(cost_model_of(link).link, link.name);
  }
}

TEST(PublishedLinks, UnknownNamesGetTheNearest) {
  try {
    published_link("nvlnik4");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("nvlink4"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep
