// Calls of libraries that may block for ever.
#pragma once

#include <chrono>
#include <functional>

namespace lockstep {

// Runs `call` on a thread of its own and returns true when it has ended, rethrowing what it threw. Returns false when
// `limit` has passed or `give_up`, asked every 20 ms, says so: the thread is left behind, so that `call` must own (or
// share) everything it uses.
bool run_bounded(
    std::function<void()> call, std::chrono::milliseconds limit,
    const std::function<bool()>& give_up = [] { return false; });

}  // namespace lockstep
