#include "framework/interconnect/comparison.h"

#include <algorithm>
#include <vector>

#include "framework/core/error.h"
#include "framework/interconnect/overlap_model.h"

namespace lockstep {
namespace {

// Of the step on the slow link, the share that waits for it: below the first there is little to gain, above the second
// the link decides.
constexpr double kHidden = 0.08;
constexpr double kDominant = 0.3;

template <class Of>
std::vector<double> values_of(std::span<const ArmRun> runs, Of of) {
  std::vector<double> values;
  for (const ArmRun& run : runs) values.push_back(of(run));
  return values;
}

double step_of(const ArmRun& run) { return run.step_ms; }
double exposed_of(const ArmRun& run) { return run.step_ms - run.alone_ms; }

bool holds_one(const Estimate& ratio) { return ratio.low <= 1 && ratio.high >= 1; }

}  // namespace

ArmSummary summarize(std::span<const ArmRun> runs) {
  const std::vector<double> steps = values_of(runs, step_of);
  ArmSummary summary{.step_ms = geometric_mean(steps), .exposed_ms = median(values_of(runs, exposed_of))};
  Estimate& step = summary.step_ms;
  step.value = median(steps);
  step.low = std::min(step.low, step.value);
  step.high = std::max(step.high, step.value);
  return summary;
}

Comparison compare_arms(std::span<const ArmRun> first, std::span<const ArmRun> second) {
  expect(first.size() == second.size() && !first.empty(),
         "comparison: expected as many runs of both arms, got {} and {}", first.size(), second.size());
  Comparison comparison{.arms = {summarize(first), summarize(second)}};
  std::vector<double> alone;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < first.size(); ++i) {
    alone.insert(alone.end(), {first[i].alone_ms, second[i].alone_ms});
    ratios.push_back(second[i].step_ms / first[i].step_ms);
  }
  comparison.alone_ms = median(alone);
  comparison.speedup = geometric_mean(ratios);
  comparison.bound = speedup_bound(comparison.alone_ms, comparison.arms[comparison.slower()].exposed_ms);
  return comparison;
}

std::string conclusion(const Comparison& comparison, const std::array<std::string, 2>& links,
                       const std::array<double, 2>& communication_ms) {
  const Estimate& speedup = comparison.speedup;
  const std::size_t slower = comparison.slower();
  const std::string& slow = links[slower];
  const std::string& fast = links[1 - slower];
  if (fast == slow) {
    return fmt::format("{} against itself: {}", fast,
                       holds_one(speedup) ? "no difference, as it must be"
                                          : "a difference where there is none: the measurement was disturbed");
  }
  const double step = comparison.arms[slower].step_ms.value;
  const double exposed = std::max(comparison.arms[slower].exposed_ms, 0.0);
  const double share = exposed / step;
  if (share < kHidden) {
    return fmt::format(
        "compute-bound: the backward pass hides the slower link ({:.3g} of its {:.3g} ms of all-reduces are left in a "
        "step of {:.3g} ms), so no link gains more than {:.2f}x",
        exposed, communication_ms[slower], step, comparison.bound);
  }
  const std::string waits =
      fmt::format("{:.0f} % of a step on {} ({:.3g} of {:.3g} ms) wait for it", 100 * share, slow, exposed, step);
  if (holds_one(speedup)) return fmt::format("undecided: {}, but the runs differ by more than {} gains", waits, fast);
  return fmt::format("{}: {}, and {} makes it {:.2f} times as fast",
                     share < kDominant ? "partly hidden" : "communication-bound", waits, fast,
                     std::max(speedup.value, 1 / speedup.value));
}

}  // namespace lockstep
