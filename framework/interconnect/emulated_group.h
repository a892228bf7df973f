// A link that is not there, in slow motion: CPU ranks whose collectives take as long as a link's would, times a factor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "framework/distributed/bucket_timing.h"
#include "framework/distributed/process_group.h"
#include "framework/interconnect/cost_model.h"

namespace lockstep {

// Another group carries the bytes, and a collective ends no earlier than on the emulated link, which takes up one at a
// time: start = max(the last rank's issue, end of the one before), end = start + slow_motion * link's time. Until then
// its Work is not done, and wait() sleeps: the processor is free for backward. The ranks are on one host, whose clock
// they share, and exchange their times of issue behind each collective; a send_recv begins when its own rank issues it.
//
// Errors and deadlines are the carrying group's, whose deadline knows nothing of the emulated time.
class EmulatedGroup final : public ProcessGroup {
 public:
  // `carrier`, a group of host memory, must outlive it and is used by nobody else meanwhile.
  EmulatedGroup(ProcessGroup& carrier, CostModel link, double slow_motion);
  // Work in flight is aborted, on the carrying group too.
  ~EmulatedGroup() override;

  std::string_view backend() const override { return "emulated"; }
  Store* store() const override { return carrier_.store(); }
  void check() const override { carrier_.check(); }
  void abort(const std::string& reason) override;

  const CostModel& link() const { return link_; }
  double slow_motion() const { return slow_motion_; }
  // Collectives that took the carrying group longer than the emulated link: the emulation is wrong by their delay.
  std::int64_t late() const;

 protected:
  Work issue(const Collective& collective) override;

 private:
  class Timeline;
  class Ticket;

  double link_us(const Collective& collective) const;

  ProcessGroup& carrier_;
  CostModel link_;
  double slow_motion_;
  std::shared_ptr<Timeline> timeline_;
};

// The slow-motion factor at which the emulated all-reduces of all these sizes take, on the fastest of the links, at
// least 3 times as long as three of four of them take to be carried, as measured now. At least 1 and the same on every
// rank. Collective.
double choose_slow_motion(ProcessGroup& carrier, std::span<const std::int64_t> sizes, std::span<const CostModel> links);
// The same for the buckets of a step on the carrying group, whose processors are busy with backward meanwhile.
double choose_slow_motion(std::span<const BucketTiming> carried, std::span<const CostModel> links, int ranks);

}  // namespace lockstep
