#include "framework/interconnect/link_counters.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "framework/interconnect/nvlink_presence.h"
#include "framework/interconnect/topology.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kWrap = std::uint64_t{1} << 32;
constexpr double kMostPcieBytesPerSecond = 128e9;  // generation 6 x16
constexpr std::chrono::milliseconds kPciePeriod{5};
constexpr std::chrono::milliseconds kLookPeriod{500};
// Between a counter's reading and the clock's.
constexpr double kLateness = 0.005;

ByteCount unreadable(std::string why) { return {std::nullopt, std::move(why)}; }

ByteCount difference(const NvmlAnswer<std::uint64_t>& before, const NvmlAnswer<std::uint64_t>& after) {
  if (!before) return unreadable(before.why_not);
  if (!after) return unreadable(after.why_not);
  if (*after < *before) return unreadable("the counter went backwards");
  return {*after - *before, {}};
}

// The NVLink bytes of one direction, in the first of the ways to count that the GPU answers.
class NvlinkCounter {
 public:
  NvlinkCounter(const Nvml& nvml, int gpu, NvmlField payload_kib, unsigned bytes_id) : nvml_(nvml), gpu_(gpu) {
    std::vector<NvmlField> payload_by_link;
    std::vector<NvmlField> bytes_by_link;  // NVLink 5
    for (const NvlinkState& link : nvml.nvlinks(gpu).value_or({})) {
      if (!link.active) continue;
      payload_by_link.push_back({payload_kib.id, static_cast<unsigned>(link.link)});
      bytes_by_link.push_back({bytes_id, static_cast<unsigned>(link.link)});
    }
    const std::vector<NvmlField> payload{payload_kib};
    for (const Source& way : {Source{payload, 1024}, Source{payload_by_link, 1024}, Source{bytes_by_link, 1}}) {
      source_ = way;
      if (!way.fields.empty() && sum()) return;
    }
    source_ = {payload, 1024};  // which says why not
  }

  NvmlAnswer<std::uint64_t> sum() const {
    std::uint64_t total = 0;
    for (const auto& value : nvml_.read(gpu_, source_.fields)) {
      if (!value) return value;
      total += *value * source_.unit_bytes;
    }
    return {total, {}};
  }

 private:
  struct Source {
    std::vector<NvmlField> fields;
    std::uint64_t unit_bytes = 1;
  };

  const Nvml& nvml_;
  int gpu_;
  Source source_;
};

// In one direction.
double most_pcie_bytes_per_s(const Nvml& nvml, int gpu) {
  const PcieLink link{nvml.max_pcie_generation(gpu).value_or(0), nvml.max_pcie_width(gpu).value_or(0)};
  return link.peak_gb_s() > 0 ? link.peak_gb_s() * 1e9 : kMostPcieBytesPerSecond;
}

// The PCIe bytes of both directions, as far as they were sampled.
class PcieCounters {
 public:
  PcieCounters(const Nvml& nvml, int gpu) : nvml_(nvml), gpu_(gpu) {}

  void sample() {
    constexpr NvmlField kFields[] = {kPcieSentBytes, kPcieReceivedBytes};
    const auto values = nvml_.read(gpu_, kFields);
    const Clock::time_point now = Clock::now();
    sent_.add(values[0], now);
    received_.add(values[1], now);
  }
  const UnwrappedCounter& sent() const { return sent_; }
  const UnwrappedCounter& received() const { return received_; }

 private:
  const Nvml& nvml_;
  int gpu_;
  UnwrappedCounter sent_{most_pcie_bytes_per_s(nvml_, gpu_)};
  UnwrappedCounter received_{most_pcie_bytes_per_s(nvml_, gpu_)};
};

enum class Urgency : std::uint8_t { usual, high };  // high: it must not be late; where the system allows it

// Calls `look` every `period` from a thread of its own, at once and at the end.
class Watch {
 public:
  Watch(std::chrono::milliseconds period, Urgency urgency, std::function<void()> look) : look_(std::move(look)) {
    look_();
    thread_ = std::thread([this, period, urgency] {
      if (urgency == Urgency::high) ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), -10);
      std::unique_lock lock(mutex_);
      while (!stopped_.wait_for(lock, period, [this] { return stop_; })) look_();
    });
  }
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    stopped_.notify_one();
    thread_.join();
    look_();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  std::function<void()> look_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

class NvmlLinkCounters final : public LinkCounters {
 public:
  NvmlLinkCounters(std::shared_ptr<const Nvml> nvml, int gpu, LinkCountersOptions options)
      : nvml_(std::move(nvml)),
        gpu_(gpu),
        options_(std::move(options)),
        sent_(*nvml_, gpu, kNvlinkSentKib, kNvlinkSentBytesOfLink),
        received_(*nvml_, gpu, kNvlinkReceivedKib, kNvlinkReceivedBytesOfLink) {
    if (!options_.is_own)
      options_.is_own = [own = static_cast<unsigned>(::getpid())](unsigned pid) { return pid == own; };
  }

  void start() override {
    looking_.reset();
    sampling_.reset();
    active_ = any_active_link();
    disturbance_.clear();
    looking_.emplace(kLookPeriod, Urgency::usual, [this] {
      if (disturbance_.empty()) disturbance_ = find_disturbance();
    });
    pcie_.reset();
    started_at_ = Clock::now();
    if (options_.pcie) {
      pcie_.emplace(*nvml_, gpu_);
      // By itself: to list processes takes the driver time.
      sampling_.emplace(kPciePeriod, Urgency::high, [this] { pcie_->sample(); });
    }
    sent_before_ = sent_.sum();
    received_before_ = received_.sum();
  }

  LinkTraffic stop() override {
    LinkTraffic traffic;
    traffic.nvlink_sent = difference(sent_before_, sent_.sum());
    traffic.nvlink_received = difference(received_before_, received_.sum());
    traffic.nvlink_active = active_ || any_active_link() || traffic.nvlink_sent.value_or(0) > 0;
    if (!traffic.nvlink_active) traffic.nvlink_sent = traffic.nvlink_received = {0, {}};
    sampling_.reset();
    looking_.reset();
    traffic.disturbance = disturbance_;
    const double seconds = std::chrono::duration<double>(Clock::now() - started_at_).count();
    traffic.pcie_most_bytes = 2 * seconds * most_pcie_bytes_per_s(*nvml_, gpu_);
    traffic.pcie_sent = traffic.pcie_received = unreadable("not counted");
    if (!pcie_) return traffic;
    traffic.pcie_sent = pcie_->sent().total();
    traffic.pcie_received = pcie_->received().total();
    traffic.pcie_least_bytes = pcie_->sent().least() + pcie_->received().least();
    traffic.pcie_most_bytes = std::min(traffic.pcie_most_bytes, pcie_->sent().most() + pcie_->received().most());
    return traffic;
  }

 private:
  // Or that nobody can tell.
  bool any_active_link() const { return has_active_nvlink(*nvml_, gpu_).value_or(true); }

  std::string find_disturbance() const {
    if (nvml_->mig_enabled(gpu_).value_or(false)) return "the GPU is divided (MIG): its counters are not one user's";
    const auto pids = nvml_->compute_processes(gpu_);
    if (!pids) return fmt::format("the processes on the GPU cannot be listed: {}", pids.why_not);
    const auto unknown = std::count_if(pids->begin(), pids->end(), [&](unsigned pid) { return !options_.is_own(pid); });
    const bool knows_own = static_cast<std::size_t>(unknown) < pids->size();
    if (static_cast<std::size_t>(unknown) <= (knows_own ? 0 : options_.own_under_other_numbers)) return {};
    const auto stranger = std::find_if(pids->begin(), pids->end(), [&](unsigned pid) { return !options_.is_own(pid); });
    return fmt::format("process {} is on the GPU too", *stranger);
  }

  std::shared_ptr<const Nvml> nvml_;
  int gpu_;
  LinkCountersOptions options_;
  NvlinkCounter sent_;
  NvlinkCounter received_;
  NvmlAnswer<std::uint64_t> sent_before_, received_before_;
  bool active_ = true;
  std::optional<PcieCounters> pcie_;
  std::string disturbance_;
  Clock::time_point started_at_;
  std::optional<Watch> looking_;   // for other users
  std::optional<Watch> sampling_;  // PCIe
};

class NoLinkCounters final : public LinkCounters {
 public:
  explicit NoLinkCounters(std::string why) : why_(std::move(why)) {}
  void start() override {}
  LinkTraffic stop() override {
    LinkTraffic traffic;
    traffic.nvlink_sent = traffic.nvlink_received = traffic.pcie_sent = traffic.pcie_received = unreadable(why_);
    return traffic;
  }

 private:
  std::string why_;
};

}  // namespace

void UnwrappedCounter::add(const NvmlAnswer<std::uint64_t>& sample, Clock::time_point at) {
  if (!why_not_.empty()) return;
  if (!sample) {
    why_not_ = sample.why_not;
    return;
  }
  if (std::exchange(started_, true)) {
    const double most = most_bytes_per_s_ * (std::chrono::duration<double>(at - last_at_).count() + kLateness);
    const bool narrow = last_ < kWrap && *sample < kWrap;
    const std::uint64_t step = *sample >= last_ ? *sample - last_ : *sample + kWrap - last_;
    if (*sample < last_ && !narrow) {
      why_not_ = "the counter went backwards";
    } else if (narrow && most >= static_cast<double>(kWrap)) {
      most_in_gaps_ += most;
    } else if (static_cast<double>(step) > most) {
      why_not_ = "the counter jumped further than the link can carry";
    } else {
      counted_ += step;
    }
    if (!why_not_.empty()) return;
  }
  last_ = *sample;
  last_at_ = at;
}

ByteCount UnwrappedCounter::total() const {
  if (!why_not_.empty()) return unreadable(why_not_);
  if (most_in_gaps_ > 0) return unreadable("the counter was read too late to see it wrap");
  return {counted_, {}};
}

double UnwrappedCounter::most() const {
  return why_not_.empty() ? static_cast<double>(counted_) + most_in_gaps_ : std::numeric_limits<double>::infinity();
}

std::unique_ptr<LinkCounters> make_link_counters(const NvmlAnswer<std::shared_ptr<const Nvml>>& nvml,
                                                 const std::string& gpu, const LinkCountersOptions& options) {
  if (!nvml) return std::make_unique<NoLinkCounters>(nvml.why_not);
  for (int i = 0; i < (*nvml)->gpu_count(); ++i) {
    if ((*nvml)->uuid(i).value_or("") == gpu || (*nvml)->pci_bus_id(i).value_or("") == canonical_bus_id(gpu)) {
      return std::make_unique<NvmlLinkCounters>(*nvml, i, options);
    }
  }
  return std::make_unique<NoLinkCounters>(fmt::format("the driver's library does not know GPU {}", gpu));
}

}  // namespace lockstep
