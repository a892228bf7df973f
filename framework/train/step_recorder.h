// Where a step is and when it came there, written by the device as it goes: inside a captured step too. The hang report
// and the bucket timeline read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/core/stream.h"
#include "framework/distributed/bucket_timing.h"
#include "framework/distributed/work.h"
#include "framework/optim/parameter_arena.h"
#include "kernels/step_report.h"

namespace lockstep {

class StepRecorder {
 public:
  enum class Moment : std::uint8_t { begin, forward, backward, end };

  // timeline false: only that buckets are finished is written, which is next to nothing. `scalars`, in device memory,
  // names the step.
  StepRecorder(const ParameterArena& arena, const kernels::StepScalars* scalars, bool timeline);

  // In stream order, on the current stream; nothing without a timeline.
  void mark(Moment moment);
  void mark_ready(std::size_t bucket);
  void mark_launched(std::size_t bucket);
  // As soon as `work` is finished; on a GPU on a stream of its own, which join() ends, on a CPU after work.wait().
  void mark_finished(std::size_t bucket, const Work& work);
  void join();

  // Of the last step whose result was taken. Throws std::invalid_argument without a timeline.
  StepTimeline timeline() const;
  // "after bucket 3 of 12 of step 17". Any thread, at any time.
  std::string progress() const;

 private:
  struct Bucket {
    TimeStamp ready, launched, finished;
  };

  void stamp(TimeStamp& at);
  TimeStamp& moment(Moment moment) const {
    return static_cast<TimeStamp*>(stamps_.get())[static_cast<std::size_t>(moment)];
  }
  Bucket& bucket(std::size_t i) const {
    return reinterpret_cast<Bucket*>(static_cast<TimeStamp*>(stamps_.get()) + 4)[i];
  }

  std::vector<std::int64_t> bucket_bytes_;
  const kernels::StepScalars* scalars_;
  bool timeline_;
  std::shared_ptr<void> stamps_;  // four moments, then the buckets: memory of the host that the device writes
  Stream stream_;
  Event begin_, end_;
};

}  // namespace lockstep
