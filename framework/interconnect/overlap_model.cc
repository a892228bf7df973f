#include "framework/interconnect/overlap_model.h"

#include <algorithm>

#include "framework/core/error.h"

namespace lockstep {

double hidden_share(double communication_ms, double exposed_ms) {
  return communication_ms > 0 ? std::clamp(1 - exposed_ms / communication_ms, 0.0, 1.0) : 1.0;
}

StepPrediction predict_step(const StepTimeline& alone, const AllReduceTime& all_reduce_ms, std::int64_t loss_bytes,
                            bool update_by_bucket) {
  StepPrediction step;
  double link_free = 0.0;
  const auto carry = [&](double ready, std::int64_t bytes) {
    const double time = all_reduce_ms(bytes);
    const double start = std::max(ready, link_free);
    link_free = start + time;
    step.communication_ms += time;
    return start;
  };
  if (loss_bytes > 0) carry(alone.forward_ms, loss_bytes);
  double bytes = 0.0;
  for (const BucketTiming& bucket : alone.buckets) {
    const double start = carry(bucket.ready_ms, bucket.bytes);
    step.buckets.push_back({bucket.bucket, bucket.bytes, bucket.ready_ms, start, link_free});
    bytes += static_cast<double>(bucket.bytes);
  }
  const double update = alone.step_ms - alone.backward_ms;
  double now = alone.backward_ms;
  for (const BucketTiming& bucket : step.buckets) {
    now = std::max(now, update_by_bucket ? bucket.finished_ms : link_free) +
          update * static_cast<double>(bucket.bytes) / bytes;
  }
  step.step_ms = std::max(now, link_free);
  step.exposed_ms = step.step_ms - alone.step_ms;
  return step;
}

double speedup_bound(double step_without_communication_ms, double exposed_ms) {
  expect(step_without_communication_ms > 0, "speed-up bound: expected a step of more than 0 ms, got {}",
         step_without_communication_ms);
  return 1 + std::max(exposed_ms, 0.0) / step_without_communication_ms;
}

}  // namespace lockstep
