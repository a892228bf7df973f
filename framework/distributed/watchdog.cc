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
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait_for(lock, kInterval, [this] { return stopping || options.failure->is_set(); });
      if (options.failure->is_set()) break;  // by fail(): the others are still to be told
      if (stopping) return;
      std::optional<std::string> reason = look();
      const std::string at = oldest();
      lock.unlock();
      if (!reason) reason = engine_failure();
      if (!reason && options.store && Clock::now() >= next_store_look) {
        reason = options.store->failure();
        next_store_look = Clock::now() + kStoreInterval;
      }
      if (reason) options.failure->set(describe(at, *reason));
      lock.lock();
    }
    const std::string at = oldest();
    pending.clear();
    lock.unlock();
    tell_others(at);
    options.abort();
  }

  // What is wrong with what is pending, if anything is. Under the lock.
  std::optional<std::string> look() {
    try {
      retire();
      note_progress();
      if (!pending.empty() && oldest_since && Clock::now() >= *oldest_since + options.timeout) {
        return fmt::format("not finished {} ms after its start", options.timeout.count());
      }
    } catch (const std::exception& error) {
      return error.what();
    }
    return std::nullopt;
  }

  std::optional<std::string> engine_failure() const {
    std::optional<std::string> error = options.engine_failure();
    if (error && options.store) error = options.store->with_cause(*error);
    return error;
  }

  // Drops what has ended. Under the lock.
  void retire() {
    while (!pending.empty() && pending.front()->ended()) {
      pending.pop_front();
      oldest_since.reset();
    }
    if (!pending.empty() && !oldest_since && pending.front()->started()) oldest_since = Clock::now();
  }

  // What moves is alive: a captured step holds many collectives, and says after which of them it is. Under the lock.
  void note_progress() {
    std::string at = oldest();
    if (oldest_since && at != oldest_at) oldest_since = Clock::now();
    oldest_at = std::move(at);
  }

  std::string oldest() const { return pending.empty() ? "no collective" : pending.front()->to_string(); }

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
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<Item>> pending;
  std::optional<Clock::time_point> oldest_since;  // when the oldest of them had started, or was seen to move
  std::string oldest_at;                          // what it said then
  bool stopping = false;
  bool told = false;  // of the watchdog's thread
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
  const std::lock_guard lock(state_->mutex);
  state_->pending.push_back(std::move(item));
}

void Watchdog::fail(const std::string& reason) {
  state_->options.failure->set(
      fmt::format("{}: aborted by rank {}: {}", state_->options.name, state_->options.rank, reason));
  // The lock makes sure that the thread either sees the latch before it waits or is woken.
  { const std::lock_guard lock(state_->mutex); }
  state_->changed.notify_all();
}

void Watchdog::drain() {
  while (!state_->options.failure->is_set()) {
    {
      const std::lock_guard lock(state_->mutex);
      try {
        state_->retire();
      } catch (const std::exception&) {
        return;  // the thread meets it too and reports it
      }
      if (state_->pending.empty()) return;
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

}  // namespace lockstep
