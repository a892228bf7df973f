#include "cli/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace lockstep::cli {
namespace {

constexpr int kBarWidth = 30;
constexpr double kSmoothing = 0.95;
constexpr double kSettled = 3.0;  // seconds until a guess of the rest is worth printing

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(std::int64_t first_step, std::int64_t total_steps)
    : first_step_(first_step), total_steps_(total_steps), terminal_(isatty(STDOUT_FILENO) == 1) {}

void Progress::update(const StepMetrics& metrics) {
  const bool first = metrics.step == first_step_ + 1;
  mean_loss_ = first ? metrics.loss : kSmoothing * mean_loss_ + (1 - kSmoothing) * metrics.loss;
  mean_rate_ = first ? metrics.samples_per_s : kSmoothing * mean_rate_ + (1 - kSmoothing) * metrics.samples_per_s;

  const Clock::time_point now = Clock::now();
  const bool last = metrics.step == total_steps_;
  const auto interval = terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(5);
  if (now - shown_ >= interval || last) {
    shown_ = now;
    const double elapsed = std::chrono::duration<double>(now - started_).count();
    const double left =
        elapsed / static_cast<double>(metrics.step - first_step_) * static_cast<double>(total_steps_ - metrics.step);
    // The first steps are slower than the rest.
    const std::string left_text = elapsed >= kSettled || last ? fmt::format("  {} left", duration_text(left)) : "";
    const auto done = static_cast<int>(kBarWidth * metrics.step / total_steps_);
    const std::string bar =
        std::string(static_cast<std::size_t>(done), '#') + std::string(static_cast<std::size_t>(kBarWidth - done), '.');
    const std::string text = fmt::format("step {}/{}  epoch {}  loss {:.4f}  {:.0f} samples/s{}", metrics.step,
                                         total_steps_, metrics.epoch + 1, mean_loss_, mean_rate_, left_text);
    fmt::print("{}", terminal_ ? fmt::format("\r[{}] {}\x1b[K", bar, text) : text + "\n");
  }
  if (metrics.val_accuracy) {
    fmt::print("{}step {}: validation loss {:.4f}, accuracy {:.4f}{}\n", terminal_ ? "\r" : "", metrics.step,
               *metrics.val_loss, *metrics.val_accuracy, terminal_ ? "\x1b[K" : "");
  }
  std::fflush(stdout);
}

}  // namespace lockstep::cli
