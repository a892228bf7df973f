#include "framework/train/metrics.h"

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "framework/core/error.h"
#include "framework/core/input_file.h"
#include "framework/core/replace_file.h"

namespace lockstep {
namespace {

// Lines that are no JSON (a line cut short by a crash) are left behind with what follows them.
std::string lines_up_to(const std::filesystem::path& file, std::int64_t step) {
  expect_no_special_file(file);
  std::string kept;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object() || parsed.value("step", step + 1) > step) break;
    kept += line + "\n";
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& file, std::int64_t resumed_step) : path_(file) {
  const std::string kept = resumed_step > 0 ? lines_up_to(file, resumed_step) : "";
  replace_file(file, kept);  // a crash meanwhile does not cost the lines that are kept
  stream_.open(file, std::ios::app);
  if (!stream_) throw Error(fmt::format("{}: cannot be written: {}", file.string(), std::strerror(errno)));
}

void MetricsFile::write(const StepMetrics& metrics) {
  nlohmann::ordered_json line = {{"step", metrics.step},
                                 {"epoch", metrics.epoch},
                                 {"loss", metrics.loss},
                                 {"lr", metrics.learning_rate},
                                 {"grad_norm", metrics.grad_norm},
                                 {"step_ms", metrics.step_ms},
                                 {"samples_per_s", metrics.samples_per_s}};
  if (metrics.val_loss) line["val_loss"] = *metrics.val_loss;
  if (metrics.val_accuracy) line["val_accuracy"] = *metrics.val_accuracy;
  stream_ << line.dump() << "\n" << std::flush;
  if (!stream_) throw Error(fmt::format("{}: cannot be written: {}", path_.string(), std::strerror(errno)));
}

}  // namespace lockstep
