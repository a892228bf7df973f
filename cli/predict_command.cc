#include "cli/predict_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/emulation.h"
#include "cli/json_file.h"
#include "cli/json_value.h"
#include "cli/list_option.h"
#include "cli/measure_command.h"
#include "cli/output_files.h"
#include "cli/own_run.h"
#include "cli/placement.h"
#include "cli/sweep_file.h"
#include "cli/timeline_json.h"
#include "framework/core/error.h"
#include "framework/core/version.h"
#include "framework/interconnect/overlap_model.h"

namespace lockstep::cli {
namespace {

struct PredictArguments {
  std::string model;
  DeviceArguments device;
  std::string ranks, batches, bucket_caps;
  std::string sweeps, links;
  double slow_motion = 1.0;
  WorkloadArguments workload;
  int steps = 10;
  int warmup = 3;
  std::string json;
};

template <class Visitor>
void visit_fields(PredictArguments& arguments, Visitor&& visit) {
  visit("--sweeps", arguments.sweeps, "links as they were measured: files of lockstep all-reduce --json, with commas");
  visit("--links", arguments.links,
        "links as they were published; default without --sweeps: nvlink4,pcie5; see --emulate of lockstep all-reduce");
  visit("--slow-motion", arguments.slow_motion, "factor on all times of links: what lockstep compare --emulate prints");
  visit("--ranks", arguments.ranks, "ranks, or several numbers of them such as 2,4,8; default: 2");
  visit("--batch-per-rank", arguments.batches, "samples of a rank in a step, or several numbers of them; default: 64");
  visit("--bucket-cap-mib", arguments.bucket_caps,
        "a bucket of gradients is closed at this size; or several whole numbers; default: 25");
  const std::string_view own[] = {"--ranks", "--batch-per-rank", "--bucket-cap-mib", "--overlap"};
  const auto others = [&](const char* name, auto& field, const char* help) {
    if (std::find(std::begin(own), std::end(own), name) == std::end(own)) visit(name, field, help);
  };
  visit_fields(arguments.workload, others);
  visit_fields(arguments.device, others);
  visit("--steps", arguments.steps, "timed steps");
  visit("--warmup", arguments.warmup, "steps before");
  visit("--json", arguments.json, "write everything to this file");
}

struct Link {
  CostModel model;
  std::string source;     // "measured on 2 ranks", "published: ..."
  bool measured = false;  // in a sweep
  bool emulated = false;  // in that
};

std::vector<Link> links_of(const PredictArguments& arguments) {
  std::vector<Link> links;
  for (const std::string& file : split_list(arguments.sweeps)) {
    const Json sweep = read_json_file("--sweeps", file);
    const std::string source = "--sweeps " + file;
    const CostModel model = read_from(source, [&] { return model_of_sweep(sweep); });
    const bool emulated = read_from(source, [&] { return value_of<bool>(sweep, "emulated"); });
    links.push_back({model,
                     fmt::format("{} on {} ranks, from {} to {} bytes", emulated ? "emulated" : "measured", model.ranks,
                                 model.regimes.front().first_bytes, model.regimes.back().last_bytes),
                     true, emulated});
  }
  const std::string published = arguments.links.empty() && links.empty() ? "nvlink4,pcie5" : arguments.links;
  for (const std::string& name : split_list(published)) {
    const PublishedLink& link = published_link(name);
    links.push_back({cost_model_of(link), std::string(link.source)});
  }
  return links;
}

// One training, by itself.
struct Work {
  int ranks;
  WorkloadArguments workload;
  StepTimeline alone;
};

// A step of it without all-reduces. GPUs compute as fast alone as beside others, and one may be all there is; CPU ranks
// share the processors.
StepTimeline measure_alone(const PredictArguments& arguments, DeviceType device, const Work& work,
                           const ScratchDirectory& scratch) {
  MeasureArguments measure{.device = arguments.device, .workload = work.workload};
  measure.device.ranks = device == DeviceType::cuda ? 1 : work.ranks;
  measure.steps = arguments.steps;
  measure.warmup = arguments.warmup;
  measure.alone = measure.timeline = true;
  std::vector<std::string> words{"measure", arguments.model};
  const std::vector<std::string> options = to_words(measure);
  words.insert(words.end(), options.begin(), options.end());
  return alone_timeline_of(run_own(words, scratch));
}

struct Prediction {
  StepPrediction step;
  double low_ms, high_ms;  // equal to the step's where nothing is extrapolated
  bool extrapolated;
};

Prediction predict(const Work& work, const Link& link, double slow_motion) {
  const auto on = [&](auto us_of) {
    return predict_step(work.alone, [&](std::int64_t bytes) { return 1e-3 * slow_motion * us_of(bytes); });
  };
  const auto band_of = [&](std::int64_t bytes) { return link.model.band(bytes, work.ranks); };
  const StepPrediction step = on([&](std::int64_t bytes) { return link.model.all_reduce_us(bytes, work.ranks); });
  const auto is_measured = [&](const BucketTiming& bucket) { return link.model.is_measured(bucket.bytes); };
  if (work.ranks == link.model.ranks && std::all_of(step.buckets.begin(), step.buckets.end(), is_measured)) {
    return {step, step.step_ms, step.step_ms, false};
  }
  return {step, on([&](std::int64_t bytes) { return band_of(bytes).low; }).step_ms,
          on([&](std::int64_t bytes) { return band_of(bytes).high; }).step_ms, true};
}

double samples_per_s(const Work& work, double step_ms) {
  return 1e3 * static_cast<double>(work.workload.batch_per_rank * work.ranks) / step_ms;
}

std::string line(const Work& work, const Link& link, const Prediction& prediction) {
  std::string text =
      fmt::format("{:>6} {:>6} {:>7g} {:>10.3f}  {:<10} {:>10.3f} {:>11.3f} {:>6.0f} % {:>11.0f}", work.ranks,
                  work.workload.batch_per_rank, work.workload.step.buckets.bucket_cap_mib, work.alone.step_ms,
                  link.model.link, prediction.step.step_ms, prediction.step.exposed_ms,
                  100 * hidden_share(prediction.step.communication_ms, prediction.step.exposed_ms),
                  samples_per_s(work, prediction.step.step_ms));
  if (prediction.extrapolated) {
    text += fmt::format("  extrapolated: {:.3f} to {:.3f} ms", prediction.low_ms, prediction.high_ms);
  }
  return text + "\n";
}

Json to_json(const Work& work, const Link& link, const Prediction& prediction) {
  return {{"link", link.model.link},
          {"source", link.source},
          {"step_ms", prediction.step.step_ms},
          {"low_ms", prediction.low_ms},
          {"high_ms", prediction.high_ms},
          {"extrapolated", prediction.extrapolated},
          {"exposed_ms", prediction.step.exposed_ms},
          {"communication_ms", prediction.step.communication_ms},
          {"hidden_share", hidden_share(prediction.step.communication_ms, prediction.step.exposed_ms)},
          {"samples_per_s", samples_per_s(work, prediction.step.step_ms)}};
}

std::vector<Work> works_of(const PredictArguments& arguments) {
  std::vector<std::int64_t> ranks = whole_numbers("--ranks", arguments.ranks);
  std::vector<std::int64_t> batches = whole_numbers("--batch-per-rank", arguments.batches);
  std::vector<std::int64_t> caps = whole_numbers("--bucket-cap-mib", arguments.bucket_caps);
  if (ranks.empty()) ranks = {2};
  if (batches.empty()) batches = {WorkloadArguments{}.batch_per_rank};
  if (caps.empty()) caps = {static_cast<std::int64_t>(BucketArguments{}.bucket_cap_mib)};
  std::vector<Work> works;
  for (const std::int64_t of_ranks : ranks) {
    for (const std::int64_t batch : batches) {
      for (const std::int64_t cap : caps) {
        Work& work = works.emplace_back(Work{.ranks = static_cast<int>(of_ranks), .workload = arguments.workload});
        work.workload.batch_per_rank = batch;
        work.workload.step.buckets.bucket_cap_mib = static_cast<double>(cap);
        check(arguments.model, work.workload);
      }
    }
  }
  return works;
}

int predict(PredictArguments arguments) {
  expect_no_launcher("predict");
  check_slow_motion(arguments.slow_motion);
  check_counts(arguments.steps, arguments.warmup);
  const std::vector<Link> links = links_of(arguments);
  std::vector<Work> works = works_of(arguments);
  check_outputs({{"--json", arguments.json}}, split_list(arguments.sweeps));
  const Placement placement = resolve_placement(arguments.device);
  arguments.device.device = placement.device == DeviceType::cuda ? "cuda" : "cpu";
  if (placement.device == DeviceType::cpu) {
    DeviceArguments most = arguments.device;
    for (const Work& work : works) most.ranks = std::max(most.ranks.value_or(1), work.ranks);
    resolve_placement(most);  // throws where they cannot all be started
  }

  // CPU ranks are joined by none of the links that were published.
  const bool emulated = arguments.slow_motion != 1 || std::any_of(links.begin(), links.end(), [&](const Link& link) {
                          return link.emulated || (placement.device == DeviceType::cpu && !link.measured);
                        });
  fmt::print("{}: a step without its all-reduces is measured here, the links are not\n", arguments.model);
  for (const Link& link : links) fmt::print("  {:<10} {}\n", link.model.link, link.source);
  if (emulated) fmt::print("  {}\n", emulation_text(arguments.slow_motion));
  fmt::print("{:>6} {:>6} {:>7} {:>10}  {:<10} {:>10} {:>11} {:>8} {:>11}\n", "ranks", "batch", "bucket", "alone ms",
             "link", "step ms", "exposed ms", "hidden", "samples/s");
  Json json = {{"command", "predict"},         {"version", std::string(version())},
               {"model", arguments.model},     {"device", arguments.device.device},
               {"emulated", emulated},         {"slow_motion", arguments.slow_motion},
               {"cost_models", Json::array()}, {"rows", Json::array()}};
  for (const Link& link : links) json["cost_models"].push_back(model_json(link.model));
  const ScratchDirectory scratch;
  for (Work& work : works) {
    work.alone = measure_alone(arguments, placement.device, work, scratch);
    Json row = {{"ranks", work.ranks},
                {"batch_per_rank", work.workload.batch_per_rank},
                {"bucket_cap_mib", work.workload.step.buckets.bucket_cap_mib},
                {"alone_ms", work.alone.step_ms},
                {"alone_timeline", timeline_json(work.alone)},
                {"links", Json::array()}};
    std::vector<Prediction> predictions;
    for (const Link& link : links) {
      predictions.push_back(predict(work, link, arguments.slow_motion));
      row["links"].push_back(to_json(work, link, predictions.back()));
      fmt::print("{}", line(work, link, predictions.back()));
    }
    if (links.size() == 2) {
      row["speedup"] = predictions[1].step.step_ms / predictions[0].step.step_ms;
      fmt::print("{:>32}  {} over {}: {:.2f}x\n", "", links[0].model.link, links[1].model.link,
                 row["speedup"].get<double>());
    }
    std::fflush(stdout);
    json["rows"].push_back(row);
  }
  if (!arguments.json.empty()) write_json_file("--json", arguments.json, json);
  return 0;
}

}  // namespace

std::function<int(char** argv)> add_predict_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("predict", "Step times on links, ranks and buckets that are not tried out");
  auto arguments = std::make_shared<PredictArguments>();
  command->add_option("MODEL", arguments->model, fmt::format("{}", fmt::join(model_names(), ", ")))->required();
  add_options(*command, *arguments);
  return [arguments](char** /*argv*/) { return predict(*arguments); };
}

}  // namespace lockstep::cli
