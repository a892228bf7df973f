// How long a collective takes on a link, by the bytes it carries: start-up plus bytes over bandwidth, measured or
// published.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Messages of one range of sizes: time = alpha + bytes * beta, in an all-reduce of CostModel::ranks ranks. Small and
// large messages are carried in different ways, so that no single pair fits both.
struct Regime {
  std::int64_t first_bytes = 0;
  std::int64_t last_bytes = 0;
  double alpha_us = 0.0;
  double beta_us_per_byte = 0.0;
};

// What a ring algorithm puts on a link: how often a message starts, and how many bytes cross for each byte of the call.
struct Traffic {
  double starts = 0.0;
  double bytes = 0.0;
};
// 2 (n-1) starts and 2 (n-1)/n of the bytes: no algorithm sends less (Patarasuk and Yuan, 2009).
Traffic all_reduce_traffic(int ranks);

struct MeasuredTime {
  std::int64_t bytes = 0;
  double us = 0.0;
};

// What of alpha at 2 ranks is paid once a call; the rest is paid for each start of the ring. From NCCL's cost model
// (src/graph/tuning.cc): 8.4 us a call, 3.4 us a start on NVLink, 5.7 on PCIe.
inline constexpr double kNvlinkStartupShare = 0.55;
inline constexpr double kPcieStartupShare = 0.42;

struct CostModel {
  std::string link;                            // "nvlink", "pcie" ... or the name of an emulated link
  int ranks = 2;                               // of the measurement
  double startup_share = kNvlinkStartupShare;  // of alpha, at 2 ranks, that is paid once a call, however many they are
  // Whether all ranks share what carries the bytes (the host's memory), so that each gets less of it as they grow.
  bool shared = false;
  std::vector<Regime> regimes;  // from small to large; the first and the last hold beyond the measured sizes too

  // Time of a call that puts `traffic` on the link, for `bytes` of an all-reduce (for all-gather and reduce-scatter
  // that is the larger side). Between two regimes the time is interpolated.
  double us(std::int64_t bytes, const Traffic& traffic) const;
  double all_reduce_us(std::int64_t bytes, int of_ranks) const { return us(bytes, all_reduce_traffic(of_ranks)); }
  // Bus bandwidth in GB/s that the regime of large messages tends to: what the hardware gives, whatever the ranks.
  double peak_busbw() const;

  bool is_measured(std::int64_t bytes) const {
    return bytes >= regimes.front().first_bytes && bytes <= regimes.back().last_bytes;
  }
  // The microseconds between which an all-reduce lies; both are all_reduce_us where nothing is extrapolated. Beyond the
  // measured sizes: a time neither falls as the size grows nor grows faster than it. At another number of ranks: a
  // shared link may get as slow as they are many (published runs over PCIe 5: 35 GB/s on 4 GPUs, 28 on 8); rings on
  // NVLink keep their bandwidth within a fifth (328 GB/s on 2 H200s, 370 on 8).
  struct Band {
    double low = 0.0;
    double high = 0.0;
  };
  Band band(std::int64_t bytes, int of_ranks) const;
};

// Fits at most three regimes to a sweep over sizes, in any order and however many, with the same least sum of relative
// errors for any outlier. `link`, `ranks` and `shared` as in CostModel; the start-up share is that of PCIe where the
// link is shared. Throws std::invalid_argument for less than two sizes, sizes or times that are not positive, and fewer
// than two ranks.
CostModel fit_cost_model(std::string_view link, int ranks, bool shared, std::span<const MeasuredTime> sweep);

}  // namespace lockstep
