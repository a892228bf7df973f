#include "framework/distributed/watchdog.h"

#include <spdlog/spdlog.h>

#include <condition_variable>
#include <deque>
#include <utility>

#include "framework/core/error.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kInterval{20};
constexpr int kManyItems = 64;               // so many new ones are looked at sooner
constexpr milliseconds kStoreInterval{200};  // the store is a call over the network
constexpr milliseconds kWordsTime{1'000};    // for the others to leave word where they are
constexpr milliseconds kEndTime{10'000};

}  // namespace

bool FailureLatch::set(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (set_) return false;
  text_ = text;
  set_.store(true, std::memory_order_release);
  return true;
}

void FailureLatch::check() const {
  if (!is_set()) return;
  const std::lock_guard lock(mutex_);
  throw Error(text_);
}

struct Watchdog::State {
  explicit State(Options chosen) : options(std::move(chosen)) {}

  void run() {
    options.begin();
    Clock::time_point next_store_look = Clock::now();
    while (true) {
      {
        std::unique_lock lock(mutex);
        changed.wait_for(lock, kInterval,
                         [this] { return stopping || unseen >= kManyItems || options.failure->is_set(); });
        unseen = 0;
        if (options.failure->is_set()) break;  // by fail(): the others are still to be told
        if (stopping) return;
      }
      std::optional<std::string> reason = look();
      if (!reason) reason = engine_failure();
      if (!reason && options.store && Clock::now() >= next_store_look) {
        reason = options.store->failure();
        next_store_look = Clock::now() + kStoreInterval;
      }
      if (reason) options.failure->set(describe(text_of(oldest()), *reason));
    }
    const std::string at = text_of(oldest());
    {
      const std::lock_guard lock(mutex);
      pending.clear();
    }
    tell_others(at);
    options.abort();
  }

  // What is wrong with what is pending, if anything is. The items are asked without the lock: the device may take its
  // time to answer, and watch() is not to wait for that.
  std::optional<std::string> look() {
    try {
      std::shared_ptr<Item> item;
      while ((item = oldest()) && item->ended()) retire();
      if (!item) return std::nullopt;
      // What moves is alive: a captured step holds many collectives, and says after which of them it is.
      std::string at = item->to_string();
      if (oldest_since ? at != oldest_at : item->started()) oldest_since = Clock::now();
      oldest_at = std::move(at);
      if (oldest_since && Clock::now() >= *oldest_since + options.timeout) {
        return fmt::format("not finished {} ms after its start", options.timeout.count());
      }
    } catch (const std::exception& error) {
      return error.what();
    }
    return std::nullopt;
  }

  // Stays so until this thread retires it.
  std::shared_ptr<Item> oldest() {
    const std::lock_guard lock(mutex);
    return pending.empty() ? nullptr : pending.front();
  }

  void retire() {
    const std::lock_guard lock(mutex);
    pending.pop_front();
    oldest_since.reset();
  }

  static std::string text_of(const std::shared_ptr<Item>& item) { return item ? item->to_string() : "no collective"; }

  std::optional<std::string> engine_failure() const {
    std::optional<std::string> error = options.engine_failure();
    if (error && options.store) error = options.store->with_cause(*error);
    return error;
  }

  // The others are asked before the failure is known here, since this rank may be gone soon after.
  std::string describe(const std::string& at, const std::string& reason) {
    std::string text = fmt::format("{}: rank {} failed in {}: {}", options.name, options.rank, at, reason);
    if (!options.store) return text;
    try {
      leave_word(at);
      options.store->abort(text);
      told = true;
      const Clock::time_point until = Clock::now() + kWordsTime;
      for (int other = 0; other < options.size; ++other) {
        if (other == options.rank) continue;
        std::optional<std::string> word;
        while (!(word = options.store->try_get(key_of(other))) && Clock::now() < until) {
          std::this_thread::sleep_for(milliseconds(10));
        }
        text += word ? fmt::format("; rank {} was in {}", other, *word) : fmt::format("; rank {} says nothing", other);
      }
    } catch (const Error& error) {
      text += fmt::format("; {}", error.what());
    }
    return text;
  }

  void tell_others(const std::string& at) {
    if (!options.store || told) return;
    try {
      options.failure->check();
    } catch (const Error& error) {
      try {
        leave_word(at);
        options.store->abort(error.what());
      } catch (const Error&) {
        // The store is gone, and with it whoever might have asked.
      }
    }
  }

  std::string key_of(int rank) const { return fmt::format("{}/failed/{}", options.name, rank); }
  void leave_word(const std::string& at) const { options.store->set(key_of(options.rank), at); }

  const Options options;
  std::mutex mutex;  // of the four below; what stands behind them is the watchdog's thread's
  std::condition_variable changed;
  std::deque<std::shared_ptr<Item>> pending;  // only the watchdog's thread takes from it
  int unseen = 0;                             // items that came since it last looked
  bool stopping = false;
  std::optional<Clock::time_point> oldest_since;  // when the oldest of them had started, or was seen to move
  std::string oldest_at;                          // what it said then
  bool told = false;
};

Watchdog::Watchdog(Options options) : state_(std::make_shared<State>(std::move(options))) {
  std::packaged_task<void()> loop([state = state_] {
    try {
      state->run();
    } catch (const std::exception& error) {
      state->options.failure->set(fmt::format("{}: {}", state->options.name, error.what()));
    }
  });
  ended_ = loop.get_future();
  thread_ = std::thread(std::move(loop));
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  if (ended_.wait_for(kEndTime) == std::future_status::ready) {
    thread_.join();
    return;
  }
  spdlog::warn("{}: left behind what does not end; a graph that holds its collectives was to be destroyed first",
               state_->options.name);
  thread_.detach();
}

void Watchdog::watch(std::shared_ptr<Item> item) {
  bool many = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->pending.push_back(std::move(item));
    many = ++state_->unseen == kManyItems;
  }
  if (many) state_->changed.notify_all();
}

void Watchdog::fail(const std::string& reason) {
  state_->options.failure->set(
      fmt::format("{}: aborted by rank {}: {}", state_->options.name, state_->options.rank, reason));
  // The lock makes sure that the thread either sees the latch before it waits or is woken.
  { const std::lock_guard lock(state_->mutex); }
  state_->changed.notify_all();
}

void Watchdog::drain() {
  while (!state_->options.failure->is_set() && state_->oldest()) std::this_thread::sleep_for(milliseconds(1));
}

}  // namespace lockstep
