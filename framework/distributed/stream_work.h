// A collective on a stream of a GPU: the handle that its caller gets and the watchdog looks at. In a build with CUDA.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "framework/core/stream.h"
#include "framework/distributed/process_group.h"
#include "framework/distributed/watchdog.h"
#include "framework/distributed/work.h"

namespace lockstep {

class StreamWork final : public Work::State, public Watchdog::Item {
 public:
  explicit StreamWork(std::shared_ptr<const FailureLatch> failure);

  // The issuing thread's, in this order: begin() marks what the collective must come after; then it is enqueued on
  // `stream`; then issued() marks its end.
  void begin(const Collective& collective, std::int64_t sequence, void* compute_stream, void* stream);
  void issued(void* stream);
  // Instead of issued(), inside a capture that fails: nothing of it will run.
  void withdraw();
  // Instead of all that, for what `stream` holds already; `where` is its to_string().
  void mark(std::function<std::string()> where, void* stream);

  // Makes the current context's stream wait; the host only where that is none of a GPU.
  void wait() override;
  // Never for a collective inside a capture, which does not run at all.
  bool done() const override;
  std::optional<Work::Clock::time_point> finished_at() const override { return std::nullopt; }

  bool started() const override;
  bool ended() const override;
  std::string to_string() const override;

 private:
  std::shared_ptr<const FailureLatch> failure_;
  Event ready_ = Event::create();
  Event finished_ = Event::create();
  std::atomic<bool> issued_ = false;  // until then its call may block the host, and no event of it can be asked
  bool captured_ = false;
  Collective collective_;
  std::string label_;  // its own: the caller's may be gone when a report is written
  std::int64_t sequence_ = 0;
  std::function<std::string()> where_;  // set where there is no collective
};

}  // namespace lockstep
