// Before the first step every kernel is loaded and every algorithm chosen, with no collective in flight: making a plan
// while one runs can hang, and a step that is captured or timed is no place for it.
#pragma once

#include <functional>
#include <string>

#include "framework/distributed/process_group.h"

namespace lockstep {

// Runs `work`, which meets the problems to be planned, on every rank: on rank 0 first, whose choices of algorithms the
// others then take. On a CPU there is nothing to choose and nothing runs.
void plan_together(ProcessGroup& group, const std::function<void()>& work);

// The choices of this process so far, as text that says what GPU and libraries they hold for; empty on a CPU.
std::string plan_record();
// Takes them over, before the first step. A record of another GPU or of other libraries is passed over.
void use_plan_record(const std::string& record);

}  // namespace lockstep
