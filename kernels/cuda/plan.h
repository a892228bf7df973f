// Choosing among the algorithms that a library offers for a problem. It happens in the plan phase, when a problem is
// met for the first time; from then on the choice stands. A choice is the number of a candidate in the library's own
// list, which is the same wherever library and GPU are the same: ranks can share choices, and a run can be repeated
// with them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels::cuda {

// Runs candidate `candidate` in the given context; throws where it cannot.
using RunCandidate = std::function<void(int candidate, const ExecContext& exec)>;

// The choice for `problem`, among candidates [0, count): the one on record, else the first where results are to be
// deterministic, else the one that is fastest on the stream's GPU, which goes on record. For that it runs them all,
// many times, and waits for the GPU; `target` is what they write: where they add to it, its contents are put back.
// Throws while the stream is captured, naming the problem, and where no candidate runs.
int choose(const ExecContext& exec, const std::string& problem, int count, const RunCandidate& run,
           const GradView& target);

// Throws that `problem` has no plan if the stream is being captured: too late to make one.
void expect_planning(const ExecContext& exec, const std::string& problem);

// What is on record, one line for each problem. The record is one for the whole process; thread-safe.
std::string plan_choices();
// Adds such lines to the record: before the first step, so that no problem has been met. Throws std::invalid_argument
// on a line that is none.
void add_plan_choices(const std::string& lines);
// What is on record for one problem.
std::optional<int> plan_choice(const std::string& problem);

}  // namespace lockstep::kernels::cuda
