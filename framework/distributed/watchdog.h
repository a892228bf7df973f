// Watches work that the host does not see fail: it runs on the streams of a GPU and waits there for other ranks.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "framework/distributed/store.h"

namespace lockstep {

// The first failure of a group, shared by everything that must not go on after it. Any thread may call it.
class FailureLatch {
 public:
  // Keeps the first; true where it is this one.
  bool set(const std::string& text);
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  // Throws Error with the text, if there is one.
  void check() const;

 private:
  std::atomic<bool> set_ = false;
  mutable std::mutex mutex_;
  std::string text_;
};

// A thread that looks every 20 ms, and sooner where much was added, whether the oldest unfinished work is overdue,
// whether the engine reports an error and whether another rank has failed. On a failure it leaves word in the store of
// where this rank is, sets the latch (with where the other ranks are), tells the others through the store and calls
// `abort`.
class Watchdog {
 public:
  // Work under watch. Asked on the watchdog's thread only; throws Error where the device has failed.
  class Item {
   public:
    virtual ~Item() = default;
    // Whether nothing that was issued before it is still running: its time counts from then.
    virtual bool started() const = 0;
    virtual bool ended() const = 0;
    // "collective 12, all_reduce f32 (262144) [bucket 3]". Where it changes, time counts anew.
    virtual std::string to_string() const = 0;
  };

  struct Options {
    std::string name;  // of the group, the same on every rank: "nccl#0"
    int rank = 0;
    int size = 1;
    std::chrono::milliseconds timeout{};  // of one item
    std::shared_ptr<Store> store;         // null for one rank
    std::shared_ptr<FailureLatch> failure;
    // All on the watchdog's thread. They own what they use: the thread may outlive the watchdog.
    std::function<void()> begin;  // before anything else
    std::function<std::optional<std::string>()> engine_failure;
    std::function<void()> abort;  // ends what runs on the device; may wait until others let go of it
  };

  explicit Watchdog(Options options);
  // Ends the thread. One whose `abort` has not come back in 10 s is left behind.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Waits for nothing.
  void watch(std::shared_ptr<Item> item);
  // Fails at once on this rank; the thread does the rest.
  void fail(const std::string& reason);
  // Returns when everything watched has ended or the latch is set, which is bounded by the timeouts.
  void drain();

 private:
  struct State;

  std::shared_ptr<State> state_;
  std::thread thread_;
  std::future<void> ended_;
};

}  // namespace lockstep
