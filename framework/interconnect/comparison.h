// What a faster link was worth to a training, from repeated runs on both.
#pragma once

#include <span>
#include <string>

#include "framework/core/statistics.h"

namespace lockstep {

// One run of one arm, in fresh processes.
struct ArmRun {
  double step_ms = 0.0;   // the median step
  double alone_ms = 0.0;  // the same with all-reduces left out
};

struct ArmSummary {
  Estimate step_ms;         // `value` is the median of the runs
  double exposed_ms = 0.0;  // median of step - alone
};

ArmSummary summarize(std::span<const ArmRun> runs);

struct Comparison {
  ArmSummary fast, slow;
  double alone_ms = 0.0;  // C: the median step without communication, of both arms
  Estimate speedup;       // how many times longer the step is on the slow link, paired run by run
  double bound = 1.0;     // 1 + E / C: what an infinitely fast link would gain
};

// Runs of the same index were made one after the other. Throws std::invalid_argument where the numbers of runs differ.
Comparison compare_arms(std::span<const ArmRun> fast, std::span<const ArmRun> slow);

// One plain sentence, such as "compute-bound: ...". The names are the links', `communication_ms` the time of all
// all-reduces of a step on the slow link.
std::string conclusion(const Comparison& comparison, const std::string& fast, const std::string& slow,
                       double communication_ms);

}  // namespace lockstep
