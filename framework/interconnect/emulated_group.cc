#include "framework/interconnect/emulated_group.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "framework/core/error.h"

namespace lockstep {
namespace {

using Clock = Work::Clock;
using Seconds = std::chrono::duration<double>;
using Kind = Collective::Kind;

// The emulated link against the carrying group.
constexpr double kMargin = 3.0;

double seconds_of(Clock::time_point at) { return Seconds(at.time_since_epoch()).count(); }
Clock::time_point time_of(double seconds) {
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(Seconds(seconds)));
}

std::int64_t bytes_of(const Collective& collective) {
  return std::max(collective.in.data != nullptr ? collective.in.bytes() : 0,
                  collective.out.data != nullptr ? ConstView(collective.out).bytes() : 0);
}

double fastest_us(std::span<const CostModel> links, std::int64_t bytes, int ranks) {
  expect(!links.empty(), "slow motion: expected links, got none");
  double us = std::numeric_limits<double>::infinity();
  for (const CostModel& link : links) us = std::min(us, link.all_reduce_us(bytes, ranks));
  return us;
}

// To two digits, which are enough and can be repeated by hand.
double rounded_up(double factor) {
  const double digit = std::pow(10.0, std::floor(std::log10(factor)) - 1);
  return std::ceil(factor / digit) * digit;
}

}  // namespace

// A collective on its way.
class EmulatedGroup::Ticket final : public Work::State {
 public:
  Ticket(std::shared_ptr<Timeline> timeline, double duration) : timeline_(std::move(timeline)), duration_(duration) {}

  void wait() override;
  bool done() const override { return finished_at().has_value(); }
  std::optional<Clock::time_point> finished_at() const override;

 private:
  friend class EmulatedGroup;
  friend class Timeline;

  std::shared_ptr<Timeline> timeline_;
  double duration_;                              // seconds on the emulated link
  double issued_at_ = seconds_of(Clock::now());  // becomes that of the last rank
  Work carried_;
  Work agreed_;                            // on issued_at_
  std::optional<Clock::time_point> ends_;  // once known; of a failed one: when that was seen
};

// What the link does when. Tickets are resolved in the order of issue, which is that in which the carrier ends them.
class EmulatedGroup::Timeline {
 public:
  void add(std::shared_ptr<Ticket> ticket) {
    const std::lock_guard lock(mutex_);
    resolve();
    pending_.push_back(std::move(ticket));
  }

  std::optional<Clock::time_point> finished_at(const Ticket& ticket) {
    const std::lock_guard lock(mutex_);
    resolve();
    if (!ticket.ends_ || (Clock::now() < *ticket.ends_ && !failure_)) return std::nullopt;
    return ticket.ends_;
  }

  // The carrier has ended it well.
  void sleep_until_end(const Ticket& ticket) {
    std::unique_lock lock(mutex_);
    resolve();
    failed_.wait_until(lock, *ticket.ends_, [&] { return failure_.has_value(); });
    if (failure_ && Clock::now() < *ticket.ends_) throw Error(*failure_);
  }

  // What the link has not ended fails. Returns what the carrier has not ended: it still writes to these tickets.
  std::deque<std::shared_ptr<Ticket>> fail(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    resolve();
    if (!failure_) failure_ = reason;
    failed_.notify_all();
    return pending_;
  }

  std::int64_t late() {
    const std::lock_guard lock(mutex_);
    resolve();
    return late_;
  }

 private:
  void resolve() {
    while (!pending_.empty() && pending_.front()->carried_.done() && pending_.front()->agreed_.done()) {
      Ticket& ticket = *pending_.front();
      const Clock::time_point carried = ticket.agreed_.finished_at().value_or(Clock::now());
      try {
        ticket.carried_.wait();
        ticket.agreed_.wait();
        const Clock::time_point end = std::max(time_of(ticket.issued_at_), link_free_) +
                                      std::chrono::duration_cast<Clock::duration>(Seconds(ticket.duration_));
        if (carried > end) ++late_;
        link_free_ = ticket.ends_.emplace(std::max(end, carried));
      } catch (const std::exception&) {
        ticket.ends_ = carried;
      }
      pending_.pop_front();
    }
  }

  std::mutex mutex_;
  std::condition_variable failed_;
  std::deque<std::shared_ptr<Ticket>> pending_;
  Clock::time_point link_free_{};
  std::int64_t late_ = 0;
  std::optional<std::string> failure_;
};

void EmulatedGroup::Ticket::wait() {
  carried_.wait();
  agreed_.wait();
  timeline_->sleep_until_end(*this);
}

std::optional<Clock::time_point> EmulatedGroup::Ticket::finished_at() const { return timeline_->finished_at(*this); }

EmulatedGroup::EmulatedGroup(ProcessGroup& carrier, CostModel link, double slow_motion)
    : ProcessGroup(carrier.rank(), carrier.size()),
      carrier_(carrier),
      link_(std::move(link)),
      slow_motion_(slow_motion),
      timeline_(std::make_shared<Timeline>()) {
  expect(slow_motion > 0 && std::isfinite(slow_motion),
         "emulated group: expected a positive slow-motion factor, got {}", slow_motion);
}

EmulatedGroup::~EmulatedGroup() {
  const std::string reason = "emulated group: destroyed before its work was finished";
  const auto in_flight = timeline_->fail(reason);
  if (in_flight.empty()) return;
  carrier_.abort(reason);
  for (const std::shared_ptr<Ticket>& ticket : in_flight) {
    for (const Work& work : {ticket->carried_, ticket->agreed_}) {
      try {
        work.wait();
      } catch (const std::exception&) {
        // Whoever waits for the ticket is told.
      }
    }
  }
  timeline_->fail(reason);  // lets go of them
}

void EmulatedGroup::abort(const std::string& reason) {
  carrier_.abort(reason);
  timeline_->fail(fmt::format("emulated group: aborted by rank {}: {}", rank(), reason));
}

std::int64_t EmulatedGroup::late() const { return timeline_->late(); }

double EmulatedGroup::link_us(const Collective& collective) const {
  const double others = size() - 1;
  const double share = others / size();
  switch (collective.kind) {
    case Kind::all_reduce:
    case Kind::barrier:
      return link_.all_reduce_us(bytes_of(collective), size());
    case Kind::all_gather:
    case Kind::reduce_scatter:
      return link_.us(bytes_of(collective), {others, share});
    case Kind::broadcast:
      return link_.us(bytes_of(collective), {others, 1.0});
    case Kind::send_recv:
      return link_.us(bytes_of(collective), {1.0, 1.0});
  }
  return 0.0;
}

Work EmulatedGroup::issue(const Collective& collective) {
  if (size() == 1) return issue_on(carrier_, collective);
  auto ticket = std::make_shared<Ticket>(timeline_, 1e-6 * slow_motion_ * link_us(collective));
  ticket->carried_ = issue_on(carrier_, collective);
  // Behind the collective itself, so that it is the one that errors are about.
  if (collective.kind != Kind::send_recv) {
    ticket->agreed_ = carrier_.all_reduce({&ticket->issued_at_, DType::f64, {}}, ReduceOp::max, collective.label);
  }
  timeline_->add(ticket);
  return Work(std::move(ticket));
}

double choose_slow_motion(ProcessGroup& carrier, std::span<const std::int64_t> sizes,
                          std::span<const CostModel> links) {
  constexpr std::size_t kRuns = 20;
  if (carrier.size() == 1) return 1.0;
  double factor = 1.0;
  for (const std::int64_t bytes : sizes) {
    std::vector<std::uint8_t> buffer(static_cast<std::size_t>(bytes));
    std::vector<double> times;
    for (std::size_t run = 0; run <= kRuns; ++run) {
      carrier.barrier().wait();
      const Clock::time_point start = Clock::now();
      double token = 0;
      const Work carried = carrier.all_reduce({buffer.data(), DType::u8, {bytes}});
      const Work agreed = carrier.all_reduce({&token, DType::f64, {}}, ReduceOp::max);
      carried.wait();
      agreed.wait();
      if (run > 0) times.push_back(1e6 * Seconds(Clock::now() - start).count());  // the first warms up
    }
    std::sort(times.begin(), times.end());
    factor = std::max(factor, kMargin * times[kRuns * 3 / 4] / fastest_us(links, bytes, carrier.size()));
  }
  factor = rounded_up(factor);
  carrier.all_reduce({&factor, DType::f64, {}}, ReduceOp::max).wait();
  return factor;
}

double choose_slow_motion(std::span<const BucketTiming> carried, std::span<const CostModel> links, int ranks) {
  double factor = 1.0;
  double link_free = 0.0;
  for (const BucketTiming& bucket : carried) {
    const double carried_us = 1e3 * (bucket.finished_ms - std::max(bucket.launched_ms, link_free));
    factor = std::max(factor, kMargin * carried_us / fastest_us(links, bucket.bytes, ranks));
    link_free = bucket.finished_ms;
  }
  return rounded_up(factor);
}

}  // namespace lockstep
