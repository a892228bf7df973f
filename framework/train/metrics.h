// What a training run reports of each step, and the file it goes to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>

namespace lockstep {

struct StepMetrics {
  std::int64_t step = 0;  // 1 after the first step
  std::int64_t epoch = 0;
  double loss = 0.0;  // mean over the global batch
  double learning_rate = 0.0;
  double grad_norm = 0.0;  // before clipping
  double step_ms = 0.0;
  double samples_per_s = 0.0;
  std::optional<double> val_loss;  // where the step was followed by an evaluation
  std::optional<double> val_accuracy;
};

// metrics.jsonl: one JSON object a line, one line a step, all digits of every number.
class MetricsFile {
 public:
  // Keeps the lines of steps up to `resumed_step` (0: none) and continues behind them.
  // Throws lockstep::Error where the file cannot be written.
  MetricsFile(const std::filesystem::path& file, std::int64_t resumed_step);
  void write(const StepMetrics& metrics);

 private:
  std::filesystem::path path_;
  std::ofstream stream_;
};

}  // namespace lockstep
