// Choosing among the algorithms that a library offers for a problem. It happens in the plan phase, when a problem is
// met for the first time; from then on the choice stands. A choice is the number of a candidate in the library's own
// list, which is the same wherever library and GPU are the same: ranks can share choices, and a run can be repeated
// with them.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/exec_context.h"
#include "kernels/tensor_view.h"

namespace lockstep::kernels::cuda {

using Targets = std::initializer_list<GradView>;

// Ways to solve a problem, numbered from 0.
struct Candidates {
  int count = 0;
  std::function<void(int candidate, const ExecContext& exec)> run;  // throws std::runtime_error where it cannot
  std::function<std::string(int candidate)> name;                   // for reports
};

// The choice for `problem`: the one on record, else the first that runs where results are to be deterministic, else the
// one that is fastest on the stream's GPU, which goes on record. For that it runs them all, many times, and waits for
// the GPU; `targets` are what they write: where they add to one, its contents are put back. Throws as expect_planning()
// does, and where no candidate runs and can be captured.
int choose(const ExecContext& exec, const std::string& problem, const Candidates& candidates, Targets targets);

// Throws that `problem` has no plan where it is too late to make one: while the stream is captured, or where
// exec.may_plan says so.
void expect_planning(const ExecContext& exec, const std::string& problem);

// What is on record, one line for each problem. The record is one for the whole process; thread-safe.
std::string plan_choices();
// Adds such lines to the record, for problems that have not been met. Throws std::invalid_argument, and adds nothing,
// where one is no such line or the last is cut off.
void add_plan_choices(const std::string& lines);
// What was measured for the choices that this process made.
struct PlanTimes {
  std::string problem;
  int choice = 0;
  std::vector<std::pair<std::string, double>> candidates;  // name, milliseconds; infinity: cannot run, or far behind
};
std::vector<PlanTimes> plan_times();
// What is on record for one problem.
std::optional<int> plan_choice(const std::string& problem);

}  // namespace lockstep::kernels::cuda
