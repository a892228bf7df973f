// Which link carried the bytes.
#include <fmt/format.h>

#include "cli/report/sections.h"
#include "cli/report/wording.h"

namespace lockstep::cli {

void add_proof(Blocks& blocks, const Cases& cases) {
  blocks.push_back(Heading{"Proof"});
  if (cases.front()->emulated) {
    blocks.push_back(Paragraph{"None: no emulated link carries anything, so there are no bytes to count."});
    return;
  }
  blocks.push_back(
      Paragraph{"The GPUs count the bytes on their links. A mode is proven where, before the first step, all-reduces "
                "of a known size "
                "moved the right bytes over the right link, and the training did as well."});
  Table bytes{.columns = {{"Link, GPU"},
                          {"NVLink out", true},
                          {"NVLink in", true},
                          {"PCIe out", true},
                          {"PCIe in", true},
                          {"Expected", true}}};
  Facts facts;
  for (const CaseFigures* figures : cases) {
    const std::string of = cases.size() > 1 ? ", " + describe_training(*figures) : "";
    for (const ArmFigures& arm : figures->arms) {
      facts.rows.emplace_back(link_name(arm, false) + of,
                              arm.proof + (arm.proof_reason.empty() ? "" : ": " + arm.proof_reason));
      for (std::size_t i = 0; i < arm.probe.size(); ++i) {
        const CountedBytes& gpu = arm.probe[i];
        bytes.rows.push_back({fmt::format("{}, {}{}", link_name(arm, false), i, of), gpu.nvlink_sent,
                              gpu.nvlink_received, gpu.pcie_sent, gpu.pcie_received,
                              fmt::format("{:.2f} GB", arm.probe_expected_bytes / 1e9)});
      }
    }
  }
  for (const ArmFigures& arm : cases.front()->arms) {  // the same in all
    std::string set;
    for (const auto& [name, value] : arm.variables) set += fmt::format("{}{}={}", set.empty() ? "" : " ", name, value);
    if (!set.empty()) facts.rows.emplace_back("NCCL's variables, " + link_name(arm, false), set);
  }
  blocks.push_back(std::move(facts));
  if (bytes.rows.empty()) return;
  bytes.caption = "Bytes that each GPU counted in the probe";
  blocks.push_back(std::move(bytes));
}

}  // namespace lockstep::cli
