#include "framework/train/step_recorder.h"

#include <chrono>
#include <cstring>

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/host_memory.h"
#include "kernels/dispatch.h"

namespace lockstep {
namespace {

// The device may be writing it.
std::int64_t step_of(const TimeStamp& stamp) { return static_cast<const volatile std::int64_t&>(stamp.step); }

}  // namespace

StepRecorder::StepRecorder(const ParameterArena& arena, const kernels::StepScalars* scalars, bool timeline)
    : scalars_(scalars), timeline_(timeline) {
  for (const lockstep::Bucket& range : arena.buckets()) {
    bucket_bytes_.push_back(slice(arena.grads(), range.range).view().bytes());
  }
  const std::size_t bytes = 4 * sizeof(TimeStamp) + bucket_bytes_.size() * sizeof(Bucket);
  stamps_ = allocate_host(bytes);
  std::memset(stamps_.get(), 0, bytes);
  if constexpr (kernels::kHasCuda) {
    if (on_gpu()) {
      stream_ = Stream::create(StreamPriority::highest);
      begin_ = Event::create();
      end_ = Event::create();
    }
  }
}

void StepRecorder::stamp(TimeStamp& at) { LOCKSTEP_DISPATCH(stamp_time, context().exec(), scalars_, &at); }

void StepRecorder::mark(Moment at) {
  if (timeline_) stamp(moment(at));
}

void StepRecorder::mark_ready(std::size_t i) {
  if (timeline_) stamp(bucket(i).ready);
}

void StepRecorder::mark_launched(std::size_t i) {
  if (timeline_) stamp(bucket(i).launched);
}

void StepRecorder::mark_finished(std::size_t i, const Work& work) {
  TimeStamp& finished = bucket(i).finished;
  if constexpr (kernels::kHasCuda) {
    if (on_gpu()) {
      begin_.record(context().exec().stream);
      begin_.make_wait(stream_.get());
      const StreamScope scope(stream_);
      work.wait();
      stamp(finished);
      end_.record(stream_.get());
      return;
    }
  }
  const auto at = work.finished_at().value_or(Work::Clock::now()).time_since_epoch();
  finished = {scalars_->step, std::chrono::duration_cast<std::chrono::nanoseconds>(at).count()};
}

void StepRecorder::join() {
  if constexpr (kernels::kHasCuda) {
    if (on_gpu()) end_.make_wait(context().exec().stream);
  }
}

StepTimeline StepRecorder::timeline() const {
  expect(timeline_, "step recorder: expected a train step with a timeline, got one without");
  const std::int64_t begin = moment(Moment::begin).nanoseconds;
  const auto ms = [begin](const TimeStamp& stamp) { return static_cast<double>(stamp.nanoseconds - begin) * 1e-6; };
  StepTimeline timeline{.forward_ms = ms(moment(Moment::forward)),
                        .backward_ms = ms(moment(Moment::backward)),
                        .step_ms = ms(moment(Moment::end))};
  for (std::size_t i = 0; i < bucket_bytes_.size(); ++i) {
    timeline.buckets.push_back({.bucket = static_cast<int>(i),
                                .bytes = bucket_bytes_[i],
                                .ready_ms = ms(bucket(i).ready),
                                .launched_ms = ms(bucket(i).launched),
                                .finished_ms = ms(bucket(i).finished)});
  }
  return timeline;
}

std::string StepRecorder::progress() const {
  std::int64_t step = 0;
  std::size_t finished = 0;
  for (std::size_t i = 0; i < bucket_bytes_.size(); ++i) {
    const std::int64_t at = step_of(bucket(i).finished);
    finished = at > step ? 1 : finished + (at == step && step > 0 ? 1 : 0);
    step = std::max(step, at);
  }
  return fmt::format("after bucket {} of {} of step {}", finished, bucket_bytes_.size(), step);
}

}  // namespace lockstep
