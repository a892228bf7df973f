// What `lockstep all-reduce` prints and writes: the columns of nccl-tests and some more.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/interconnect/all_reduce_sweep.h"

namespace lockstep::cli {

struct SweepDescription {
  std::string link;    // "nvlink", an emulated link ...
  std::string path;    // how the bytes travel; empty where it is not known
  std::string device;  // "2 ranks, gloo", "2 x NVIDIA H200, nccl"
  int ranks = 1;
  AllReduceTest test;
  double peak_gb_s = 0.0;           // of the link in one direction; 0: not known
  std::optional<bool> shared_link;  // whether the ranks share it, as in CostModel; empty: not known
  bool emulated = false;
  double slow_motion = 1.0;
};

// Times of an emulated link are shown as the link's own: what was measured, divided by the factor of slow motion.
AllReduceRow without_slow_motion(AllReduceRow row, double slow_motion);

std::string sweep_header(const SweepDescription& sweep);
std::string sweep_line(const SweepDescription& sweep, const AllReduceRow& row);
std::string sweep_footer(const SweepDescription& sweep, const std::vector<AllReduceRow>& rows);

nlohmann::ordered_json sweep_json(const SweepDescription& sweep, const std::vector<AllReduceRow>& rows);

}  // namespace lockstep::cli
