// How long the steps of a training take, and what happens when within them.
#pragma once

#include <vector>

#include "framework/distributed/bucket_timing.h"
#include "framework/distributed/process_group.h"
#include "framework/train/train_step.h"

namespace lockstep {

struct StepCount {
  int warmup = 5;  // steps before, not counted; the first also captures the step on a GPU
  int timed = 20;
};

// Steps on one and the same batch, whatever is to be learned from it: nothing is read while they run. Both functions
// are collective over `group`, which carries nothing else meanwhile; of each step the times of its slowest rank are
// returned, on every rank.

// Milliseconds of each timed step. On a GPU steps follow each other as in a training, without waiting for results; CPU
// ranks meet before each.
std::vector<double> time_steps(TrainStep& step, const DeviceBatch& batch, ProcessGroup& group, const StepCount& count);

// The timeline of a step, each moment of it the median over the timed ones. `step` records timelines.
StepTimeline measure_timeline(TrainStep& step, const DeviceBatch& batch, ProcessGroup& group, const StepCount& count);

}  // namespace lockstep
