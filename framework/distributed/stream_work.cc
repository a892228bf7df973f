#include "framework/distributed/stream_work.h"

#include <utility>

#include "framework/core/context.h"
#include "framework/core/error.h"

namespace lockstep {

StreamWork::StreamWork(std::shared_ptr<const FailureLatch> failure) : failure_(std::move(failure)) {}

void StreamWork::begin(const Collective& collective, std::int64_t sequence, void* compute_stream, void* stream) {
  label_ = collective.label;
  collective_ = collective;
  collective_.label = label_;
  sequence_ = sequence;
  where_ = nullptr;
  captured_ = is_capturing(compute_stream);
  issued_.store(false, std::memory_order_relaxed);
  ready_.record(compute_stream);
  ready_.make_wait(stream);
}

void StreamWork::issued(void* stream) {
  finished_.record(stream);
  issued_.store(true, std::memory_order_release);
}

void StreamWork::withdraw() { issued_.store(true, std::memory_order_release); }

void StreamWork::mark(std::function<std::string()> where, void* stream) {
  where_ = std::move(where);
  captured_ = false;
  issued(stream);
}

void StreamWork::wait() {
  failure_->check();
  if (context().device() == DeviceType::cuda) {
    void* const stream = context().exec().stream;
    // What was captured runs in replays, which wait by themselves: after the capture there is nothing to wait for.
    if (!captured_ || is_capturing(stream)) finished_.make_wait(stream);
  } else if (!captured_) {
    finished_.synchronize();  // ends when the watchdog aborts, at the latest
    failure_->check();
  }
}

bool StreamWork::done() const {
  if (failure_->is_set()) return true;
  try {
    return !captured_ && finished_.done();
  } catch (const Error&) {
    return true;  // the device has failed, and this with it
  }
}

bool StreamWork::started() const {
  return !issued_.load(std::memory_order_acquire) || captured_ || where_ || ready_.done();
}

bool StreamWork::ended() const { return issued_.load(std::memory_order_acquire) && (captured_ || finished_.done()); }

std::string StreamWork::to_string() const {
  return where_ ? where_() : fmt::format("collective {}, {}", sequence_, collective_.to_string());
}

}  // namespace lockstep
