// Streams and events of a GPU: what runs in which order without the host waiting. A stream is spelled void* where it is
// only passed on, as in ExecContext, so that nothing else includes CUDA's headers. Defined in a build with CUDA.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace lockstep {

enum class StreamPriority : std::uint8_t { lowest, normal, highest };

// Copying a Stream copies the handle. A default-made one is none.
class Stream {
 public:
  Stream() = default;
  // A new stream of the calling thread's GPU that does not wait for the default stream.
  static Stream create(StreamPriority priority = StreamPriority::normal);

  void* get() const { return handle_.get(); }

 private:
  std::shared_ptr<void> handle_;  // a cudaStream_t; what is in flight when the last holder goes still runs to its end
};

// The host waits for everything that `stream` holds.
void synchronize(void* stream);
// True between the begin and the end of a capture: what is enqueued then becomes part of a graph and does not run.
bool is_capturing(void* stream);

enum class EventTiming : std::uint8_t { off, on };

// A mark in a stream. Copying an Event copies the handle. A default-made one is none.
class Event {
 public:
  Event() = default;
  // With timing it costs a little more to record.
  static Event create(EventTiming timing = EventTiming::off);

  // Puts the mark behind what `stream` holds now; it is no longer where it was before.
  void record(void* stream) const;
  // What `stream` gets from now on starts after the mark. Also inside a capture, where both must be of the same graph.
  void make_wait(void* stream) const;
  // Whether everything before the mark has ended; an Error where something before it has failed. Not to be asked of a
  // mark inside a capture.
  bool done() const;
  // The host waits for the mark.
  void synchronize() const;
  // Of two marks with timing, both come.
  double milliseconds_since(const Event& earlier) const;

 private:
  std::shared_ptr<void> handle_;  // a cudaEvent_t
};

// For tests of order: called with a stream before a mark is put behind what it holds, and after it was made to wait for
// one. It may enqueue a delay, which must change nothing. Not while other threads use streams; empty: none.
void set_stream_hook(std::function<void(void* stream)> hook);

}  // namespace lockstep
