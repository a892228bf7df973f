// Timelines of steps in the files that commands write and read.
#pragma once

#include <nlohmann/json.hpp>

#include "framework/distributed/bucket_timing.h"

namespace lockstep::cli {

// {"forward_ms", "backward_ms", "step_ms", "buckets": [{"bucket", "bytes", "ready_ms", "launched_ms", "finished_ms"}]}
nlohmann::ordered_json timeline_json(const StepTimeline& timeline);
// Throws std::invalid_argument where something is missing or none.
StepTimeline timeline_of(const nlohmann::ordered_json& json);

// Of a JSON array of numbers.
double median_of(const nlohmann::ordered_json& values);

// Of what `lockstep measure --timeline` wrote: the step without its all-reduces. Instrumented steps tell when what
// happens in it, the others how long it takes.
StepTimeline alone_timeline_of(const nlohmann::ordered_json& figures);

}  // namespace lockstep::cli
