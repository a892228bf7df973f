// Work on the compute stream that is captured once and replayed with a single call. In a build with CUDA.
#pragma once

#include <functional>
#include <memory>

namespace lockstep {

class CudaGraph {
 public:
  // Records what `body` enqueues on the current context's stream, and on streams that are made to wait for it and that
  // it waits for in turn; nothing of it runs. The capture is this thread's: others may call CUDA meanwhile. `body` must
  // not wait for the device nor allocate what the allocator has not cached, so it has run once before, and all memory
  // that it used must stay at its address. Streams keep their priorities. What `body` throws is rethrown, and nothing
  // is captured.
  void capture(const std::function<void()>& body);

  bool captured() const { return executable_ != nullptr; }
  // Enqueues it on the current context's stream.
  void launch() const;

 private:
  std::shared_ptr<void> executable_;  // a cudaGraphExec_t
};

}  // namespace lockstep
