// When the buckets of a step were complete, launched and reduced.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// Times in milliseconds since the step began, on this rank.
struct BucketTiming {
  int bucket = 0;
  std::int64_t bytes = 0;
  double ready_ms = 0.0;     // its last gradient was written
  double launched_ms = 0.0;  // its all-reduce was issued; later than ready where buckets before it were not
  double finished_ms = 0.0;
};

struct StepTimeline {
  double forward_ms = 0.0;   // the end of the forward pass, when the all-reduce of the loss is issued
  double backward_ms = 0.0;  // the end of backward
  double step_ms = 0.0;      // the end of the update
  std::vector<BucketTiming> buckets;
};

}  // namespace lockstep
