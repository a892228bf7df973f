#include "cli/sweep_file.h"

#include "cli/json_value.h"
#include "cli/run_verdict.h"
#include "framework/core/error.h"

namespace lockstep::cli {

CostModel model_of_sweep(const nlohmann::ordered_json& sweep) {
  expect(entry_of(sweep, "rows").is_array(), "expected a file of lockstep all-reduce --json, found no rows in it");
  const auto wrong = value_of<std::int64_t>(sweep, "wrong");
  expect(wrong == 0, "expected a sweep whose results were right, got {} wrong elements; measure it again", wrong);
  const Json& probe = entry_of(sweep, "probe");
  expect(verdict_of(probe) != Verdict::contradicted, "expected a sweep of {}, got one that took another link: {}",
         value_of<std::string>(sweep, "link"), value_of<std::string>(probe, "reason"));
  std::vector<MeasuredTime> times;
  for (const Json& row : elements_of(sweep, "rows")) {
    times.push_back({needed<std::int64_t>(row, "bytes"), needed<double>(entry_of(row, "in_place"), "us")});
  }
  // A link that is not known counts as shared: its figures at other numbers of ranks get the wider band.
  return fit_cost_model(needed<std::string>(sweep, "link"), needed<int>(sweep, "ranks"),
                        value_of<bool>(sweep, "shared_link", true), times);
}

nlohmann::ordered_json model_json(const CostModel& model) {
  nlohmann::ordered_json json = {
      {"link", model.link}, {"ranks", model.ranks}, {"startup_share", model.startup_share}, {"shared", model.shared}};
  json["regimes"] = nlohmann::ordered_json::array();
  for (const Regime& regime : model.regimes) {
    json["regimes"].push_back({{"first_bytes", regime.first_bytes},
                               {"last_bytes", regime.last_bytes},
                               {"alpha_us", regime.alpha_us},
                               {"beta_us_per_byte", regime.beta_us_per_byte}});
  }
  return json;
}

}  // namespace lockstep::cli
