// What a faster link was worth to a training, from repeated runs on both.
#pragma once

#include <array>
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
  std::array<ArmSummary, 2> arms;
  double alone_ms = 0.0;  // C: the median step without communication, of both arms
  Estimate speedup;       // how many times longer the step is in the second arm, paired run by run
  double bound = 1.0;     // 1 + E / C with E of the slower arm: what an infinitely fast link would gain over it

  // The arm with the longer step.
  std::size_t slower() const { return speedup.value < 1 ? 0 : 1; }
};

// Runs of the same index were made one after the other. Throws std::invalid_argument where the numbers of runs differ.
Comparison compare_arms(std::span<const ArmRun> first, std::span<const ArmRun> second);

// One plain sentence, such as "compute-bound: ...", whichever arm is the slower one. Of each: the link's name, and the
// time of all all-reduces of a step.
std::string conclusion(const Comparison& comparison, const std::array<std::string, 2>& links,
                       const std::array<double, 2>& communication_ms);

}  // namespace lockstep
