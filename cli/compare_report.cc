#include "cli/compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/emulation.h"
#include "cli/run_verdict.h"

namespace lockstep::cli {
namespace {

std::string with_interval(const Estimate& estimate) {
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", estimate.value, estimate.low, estimate.high);
}

std::string title(const CompareCase& compared) {
  const CompareSetup& setup = compared.setup();
  std::string text = fmt::format("{}, {} samples a rank, {} rank{}", compared.model(), compared.batch_per_rank(),
                                 compared.ranks(), compared.ranks() == 1 ? "" : "s");
  if (setup.emulated) text += fmt::format(" ({})", emulation_text(compared.slow_motion()));
  return text;
}

// What the counters saw of the probe and of the training, and the verdict's reason where that is another.
std::string bytes_by_link(const CompareArm& arm) {
  const auto& run = arm.runs.front();
  std::string text = fmt::format("probe: {}", run.at("probe").at("reason").get<std::string>());
  const std::string training = run.at("training").at("reason");
  if (verdict_of(run.at("probe")) == Verdict::proven) text += "; training: " + training;
  if (const std::string reason = arm.proof_reason(); text.find(reason) == std::string::npos) text += "; " + reason;
  return text;
}

// Where the ranks could not keep up with what they emulate.
std::string lateness(const CompareCase& compared) {
  std::string text;
  for (std::size_t i = 0; i < compared.arms().size(); ++i) {
    const CompareArm& arm = compared.arms()[i];
    const std::int64_t late = disturbing_collectives(arm.runs);
    if (late == 0) continue;
    text += fmt::format("  disturbed: {} collectives took these ranks longer than {}; a larger --slow-motion helps\n",
                        late, compared.setup().links[i]);
  }
  return text;
}

}  // namespace

std::string report(const CompareCase& compared) {
  std::string text = title(compared) + "\n";
  if (!compared.communicates()) {
    return text + fmt::format("  step {:.2f} ms, {:.0f} samples/s: one rank sends nothing\n", compared.alone_ms(),
                              compared.samples_per_s(compared.alone_ms()));
  }
  const Comparison& result = compared.comparison();
  text += fmt::format("  {:<10} {:>26} {:>11} {:>11} {:>7} {:>12}  {}\n", "link", "step ms (95 % interval)",
                      "samples/s", "exposed ms", "hidden", "predicted ms", "proof");
  for (std::size_t i = 0; i < 2; ++i) {
    const CompareArm& arm = compared.arms()[i];
    const ArmSummary& summary = result.arms[i];
    const double hidden = hidden_share(arm.predicted.communication_ms, summary.exposed_ms);
    text += fmt::format("  {:<10} {:>26} {:>11.0f} {:>11.2f} {:>5.0f} % {:>12.2f}  {}\n", compared.setup().links[i],
                        with_interval(summary.step_ms), compared.samples_per_s(summary.step_ms.value),
                        summary.exposed_ms, 100 * hidden, arm.predicted.step_ms, arm.proof());
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const CompareArm& arm = compared.arms()[i];
    text += fmt::format("  {} ({}): {}\n", compared.setup().links[i], arm.path(),
                        compared.setup().emulated ? arm.proof_reason() : bytes_by_link(arm));
  }
  text += fmt::format("  without all-reduces {:.2f} ms\n", result.alone_ms);
  text += fmt::format("  {} over {}: {}x, predicted {:.2f}x; no link gains more than {:.2f}x (1 + E/C)\n",
                      compared.setup().links[0], compared.setup().links[1], with_interval(result.speedup),
                      compared.predicted_speedup(), result.bound);
  text += lateness(compared) + fmt::format("  {}\n", compared.conclusion());
  if (!compared.setup().emulated) return text;
  return text + fmt::format(
                    "  that is for links slowed down by {:.3g} beside processors that are not: it says nothing "
                    "about GPUs; at full speed these ranks would see {:.2f}x\n",
                    compared.slow_motion(), compared.speedup_at_full_speed());
}

std::string summary(const std::vector<CompareCase>& cases) {
  const CompareSetup& setup = cases.front().setup();
  std::string text = fmt::format("{:<10} {:>6} {:>6} {:>12} {:>14} {:>14} {:>22} {:>7}\n", "model", "ranks", "batch",
                                 "alone ms", setup.links[0] + " ms", setup.links[1] + " ms", "speed-up", "bound");
  for (const CompareCase& compared : cases) {
    text += fmt::format("{:<10} {:>6} {:>6} ", compared.model(), compared.ranks(), compared.batch_per_rank());
    const Comparison& result = compared.comparison();
    text += compared.communicates()
                ? fmt::format("{:>12.2f} {:>14.2f} {:>14.2f} {:>22} {:>7.2f}\n", result.alone_ms,
                              result.arms[0].step_ms.value, result.arms[1].step_ms.value, with_interval(result.speedup),
                              result.bound)
                : fmt::format("{:>12.2f} {:>14} {:>14} {:>22} {:>7}\n", compared.alone_ms(), "-", "-", "-", "-");
  }
  return text;
}

std::string duration_text(double seconds) {
  if (seconds < 90) return fmt::format("about {:.0f} seconds", std::max(1.0, seconds));
  return fmt::format("about {:.0f} minutes", std::ceil(seconds / 60));
}

}  // namespace lockstep::cli
