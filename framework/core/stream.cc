#include "framework/core/stream.h"

#include <algorithm>
#include <utility>

#include "framework/core/cuda_check.h"

namespace lockstep {
namespace {

std::function<void(void* stream)>& stream_hook() {
  static std::function<void(void* stream)> hook;
  return hook;
}

cudaEvent_t event_of(const std::shared_ptr<void>& handle) { return static_cast<cudaEvent_t>(handle.get()); }

}  // namespace

Stream Stream::create(StreamPriority priority) {
  int lowest = 0;
  int highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t handle = nullptr;
  // Smaller numbers come first; where the device knows two only, the lower one serves as the middle.
  const int value = priority == StreamPriority::highest  ? highest
                    : priority == StreamPriority::lowest ? lowest
                                                         : std::min(lowest, (highest + lowest) / 2);
  check_cuda(cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking, value), "cudaStreamCreateWithPriority");
  Stream stream;
  stream.handle_ = {handle, [](void* old) {
                      log_cuda_failure(cudaStreamDestroy(static_cast<cudaStream_t>(old)), "cudaStreamDestroy");
                    }};
  return stream;
}

void synchronize(void* stream) {
  check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "cudaStreamSynchronize");
}

bool is_capturing(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

Event Event::create(EventTiming timing) {
  cudaEvent_t handle = nullptr;
  const unsigned flags = timing == EventTiming::on ? cudaEventDefault : cudaEventDisableTiming;
  check_cuda(cudaEventCreateWithFlags(&handle, flags), "cudaEventCreateWithFlags");
  Event event;
  event.handle_ = {
      handle, [](void* old) { log_cuda_failure(cudaEventDestroy(static_cast<cudaEvent_t>(old)), "cudaEventDestroy"); }};
  return event;
}

void Event::record(void* stream) const {
  if (stream_hook()) stream_hook()(stream);
  check_cuda(cudaEventRecord(event_of(handle_), static_cast<cudaStream_t>(stream)), "cudaEventRecord");
}

void Event::make_wait(void* stream) const {
  check_cuda(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_of(handle_)), "cudaStreamWaitEvent");
  if (stream_hook()) stream_hook()(stream);
}

bool Event::done() const {
  const cudaError_t status = cudaEventQuery(event_of(handle_));
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // it is no failure: the next check must not find it
    return false;
  }
  check_cuda(status, "cudaEventQuery");
  return true;
}

double Event::milliseconds_since(const Event& earlier) const {
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, event_of(earlier.handle_), event_of(handle_)), "cudaEventElapsedTime");
  return milliseconds;
}

void Event::synchronize() const { check_cuda(cudaEventSynchronize(event_of(handle_)), "cudaEventSynchronize"); }

void set_stream_hook(std::function<void(void* stream)> hook) { stream_hook() = std::move(hook); }

}  // namespace lockstep
