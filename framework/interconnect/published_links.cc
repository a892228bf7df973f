#include "framework/interconnect/published_links.h"

#include <limits>

#include "framework/core/nearest_name.h"
#include "framework/interconnect/link_policy.h"

namespace lockstep {
namespace {

constexpr std::string_view kNvlink = "NVLink peer-to-peer";
constexpr std::string_view kPeer = "PCIe peer-to-peer";

// Start-up on NVLink and staged: measured on two H200s, the same for other generations. Other generations of PCIe scale
// with the raw rate.
constexpr PublishedLink kLinks[] = {
    {"nvlink3", kNvlink, 14, 230, 300, false, "published, 8 A100"},
    {"nvlink4", kNvlink, 14, 320, 450, false, "measured, 2 H200: 300 GB/s at 256 MiB, 328 at 1 GiB"},
    {"nvlink5", kNvlink, 14, 695, 900, false, "published, 8 B300"},
    {"pcie3", kStagedOverPcie, 22, 6.85, 15.75, true, "a quarter of pcie5's bandwidth"},
    {"pcie4", kStagedOverPcie, 22, 13.7, 31.5, true, "half of pcie5's bandwidth"},
    {"pcie5", kStagedOverPcie, 22, 27.4, 63, true, "measured, 2 H200"},
    {"pcie3-p2p", kPeer, 19.8, 13.45, 15.75, true, "half of pcie4-p2p's bandwidth"},
    {"pcie4-p2p", kPeer, 19.8, 26.9, 31.5, true, "published, 2 A100"},
    {"pcie5-p2p", kPeer, 19.8, 53.8, 63, true, "twice pcie4-p2p's bandwidth"},
};

}  // namespace

std::span<const PublishedLink> published_links() { return kLinks; }

const PublishedLink& published_link(std::string_view name) {
  std::vector<std::string> names;
  for (const PublishedLink& link : kLinks) {
    if (link.name == name) return link;
    names.emplace_back(link.name);
  }
  expect_known("emulated link", std::string(name), names);
  return kLinks[0];
}

CostModel cost_model_of(const PublishedLink& link) {
  const double beta = all_reduce_traffic(2).bytes / (1e3 * link.busbw);
  return {.link = std::string(link.name),
          .ranks = 2,
          .startup_share = link.shared ? kPcieStartupShare : kNvlinkStartupShare,
          .shared = link.shared,
          .regimes = {{0, std::numeric_limits<std::int64_t>::max(), link.alpha_us, beta}}};
}

}  // namespace lockstep
