#include "cli/timeline_json.h"

#include <vector>

#include "cli/json_value.h"
#include "framework/core/statistics.h"

namespace lockstep::cli {

nlohmann::ordered_json timeline_json(const StepTimeline& timeline) {
  nlohmann::ordered_json json = {
      {"forward_ms", timeline.forward_ms}, {"backward_ms", timeline.backward_ms}, {"step_ms", timeline.step_ms}};
  json["buckets"] = nlohmann::ordered_json::array();
  for (const BucketTiming& bucket : timeline.buckets) {
    json["buckets"].push_back({{"bucket", bucket.bucket},
                               {"bytes", bucket.bytes},
                               {"ready_ms", bucket.ready_ms},
                               {"launched_ms", bucket.launched_ms},
                               {"finished_ms", bucket.finished_ms}});
  }
  return json;
}

StepTimeline timeline_of(const nlohmann::ordered_json& json) {
  StepTimeline timeline{.forward_ms = needed<double>(json, "forward_ms"),
                        .backward_ms = needed<double>(json, "backward_ms"),
                        .step_ms = needed<double>(json, "step_ms")};
  for (const Json& bucket : elements_of(json, "buckets")) {
    timeline.buckets.push_back({.bucket = needed<int>(bucket, "bucket"),
                                .bytes = needed<std::int64_t>(bucket, "bytes"),
                                .ready_ms = needed<double>(bucket, "ready_ms"),
                                .launched_ms = needed<double>(bucket, "launched_ms"),
                                .finished_ms = needed<double>(bucket, "finished_ms")});
  }
  return timeline;
}

double median_of(const nlohmann::ordered_json& values) { return median(values.get<std::vector<double>>()); }

StepTimeline alone_timeline_of(const nlohmann::ordered_json& figures) {
  StepTimeline timeline = timeline_of(figures.at("alone_timeline"));
  const double factor = median_of(figures.at("alone_ms")) / timeline.step_ms;
  for (double* ms : {&timeline.forward_ms, &timeline.backward_ms, &timeline.step_ms}) *ms *= factor;
  for (BucketTiming& bucket : timeline.buckets) {
    for (double* ms : {&bucket.ready_ms, &bucket.launched_ms, &bucket.finished_ms}) *ms *= factor;
  }
  return timeline;
}

}  // namespace lockstep::cli
