// Before the first step every kernel is loaded and every algorithm chosen, with no collective in flight: making a plan
// while one runs can hang, and a step that is captured or timed is no place for it.
#pragma once

#include <filesystem>
#include <functional>

#include "framework/distributed/process_group.h"

namespace lockstep {

// Runs `work`, which meets the problems to be planned, on every rank: on rank 0 first, whose choices of algorithms the
// others then take. From then on ranks of several, among whom a collective may be under way, make plans nowhere else: a
// problem that none has is an error that names it. Collective. On a CPU there is nothing to choose and nothing runs.
void plan_together(ProcessGroup& group, const std::function<void()>& work);

// Takes over the choices that save_plans() kept in `file`, before the first step. A file that is not there, and one of
// another GPU or of other libraries, is passed over; so is a damaged one, with a warning.
void use_plans(const std::filesystem::path& file);
// Keeps the choices of this process so far; on a CPU there are none, and no file. Throws Error.
void save_plans(const std::filesystem::path& file);

}  // namespace lockstep
