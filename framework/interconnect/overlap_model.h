// What a step of data parallelism takes when its buckets are reduced behind backward.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "framework/distributed/bucket_timing.h"

namespace lockstep {

// Milliseconds of an all-reduce of so many bytes.
using AllReduceTime = std::function<double(std::int64_t bytes)>;

struct StepPrediction {
  double step_ms = 0.0;
  double communication_ms = 0.0;  // of all all-reduces, one after the other
  double exposed_ms = 0.0;        // what they add to the step: it is longer by this than with all-reduces left out
  std::vector<BucketTiming> buckets;
};

// `alone` is a step whose all-reduces were left out: its length C, its backward's end, and each bucket's ready time and
// bytes. The link carries one bucket at a time, in order: start = max(ready, end of the one before). The first call is
// the loss's, of `loss_bytes` (0: none), at the end of the forward pass. The update of a bucket follows its reduction
// (`update_by_bucket`), or that of all buckets (where the gradient is clipped); it takes what `alone` needs after
// backward, divided among the buckets by bytes.
StepPrediction predict_step(const StepTimeline& alone, const AllReduceTime& all_reduce_ms, std::int64_t loss_bytes = 4,
                            bool update_by_bucket = true);

// The share of the communication that costs nothing, from 0 to 1.
double hidden_share(double communication_ms, double exposed_ms);

// The most that a faster link can gain over one whose exposed communication is `exposed_ms`: 1 + E / C.
double speedup_bound(double step_without_communication_ms, double exposed_ms);

}  // namespace lockstep
