// What a GPU's own counters say went over its links: the evidence.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "framework/interconnect/nvml.h"

namespace lockstep {

// Bytes that a GPU sent or received; without a value, why the counter cannot be relied on.
using ByteCount = NvmlAnswer<std::uint64_t>;

// Between start() and stop().
struct LinkTraffic {
  std::string gpu;                         // whose, in a verdict's reason: "rank 1"
  ByteCount nvlink_sent, nvlink_received;  // payload
  ByteCount pcie_sent, pcie_received;
  // Between which PCIe carried, in and out together, where those have no value: times at which the counters were not
  // read soon enough count as nothing, and as all that the link can carry.
  double pcie_least_bytes = 0, pcie_most_bytes = std::numeric_limits<double>::infinity();
  bool nvlink_active = true;  // false only where the driver says that no NVLink of this GPU is up
  std::string disturbance;    // "process 4711 is on the GPU too"; empty where there was none
  // NCCL's own log shows whose connections these are, and that none of them can take NVLink.
  bool nccl_avoids_nvlink = false;
};

// Of one GPU. From start() to stop() threads look for other users, and follow counters that wrap.
class LinkCounters {
 public:
  virtual ~LinkCounters() = default;
  virtual void start() = 0;  // again: from then on
  virtual LinkTraffic stop() = 0;
};

struct LinkCountersOptions {
  // They wrap at 32 bits, which takes 68 ms at the full rate of generation 5, and so must be read all the time.
  bool pcie = true;
  // Whether a process on the GPU belongs to what is measured. By default: this process.
  std::function<bool(unsigned pid)> is_own;
  // A container sees its own processes under numbers of the host: so many unknown ones are its own, where no known one
  // is there.
  std::size_t own_under_other_numbers = 1;
};

// Of the GPU with this UUID ("GPU-...") or PCI bus id. Where the driver, the GPU or a counter cannot be read, the
// traffic says why: nothing throws.
std::unique_ptr<LinkCounters> make_link_counters(const NvmlAnswer<std::shared_ptr<const Nvml>>& nvml,
                                                 const std::string& gpu, const LinkCountersOptions& options = {});

// A counter of PCIe bytes as samples of it come in: wraps at 32 bits are undone, and what cannot be is noticed. A
// sample that comes too late to see a wrap leaves a gap, and the count goes on behind it.
class UnwrappedCounter {
 public:
  using Clock = std::chrono::steady_clock;

  // No link moves more than this; a larger step between samples is no count.
  explicit UnwrappedCounter(double most_bytes_per_s) : most_bytes_per_s_(most_bytes_per_s) {}
  void add(const NvmlAnswer<std::uint64_t>& sample, Clock::time_point at);
  // Since the first sample; no value where there is a gap.
  ByteCount total() const;
  // The same where there may be gaps; 0 and infinity where the counter says nothing at all.
  double least() const { return why_not_.empty() ? static_cast<double>(counted_) : 0; }
  double most() const;

 private:
  double most_bytes_per_s_;
  bool started_ = false;
  std::uint64_t last_ = 0;
  Clock::time_point last_at_;
  std::uint64_t counted_ = 0;  // between samples without a gap
  double most_in_gaps_ = 0;
  std::string why_not_;
};

}  // namespace lockstep
