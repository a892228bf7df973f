#include "cli/sweep_file.h"

#include "framework/core/error.h"

namespace lockstep::cli {

CostModel model_of_sweep(const nlohmann::ordered_json& sweep) {
  std::vector<MeasuredTime> times;
  try {
    for (const auto& row : sweep.at("rows")) times.push_back({row.at("bytes"), row.at("in_place").at("us")});
    // A link that is not known counts as shared: its figures at other numbers of ranks get the wider band.
    const auto& shared = sweep.at("shared_link");
    return fit_cost_model(sweep.at("link").get<std::string>(), sweep.at("ranks"), shared.is_null() || shared == true,
                          times);
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(fmt::format("sweep: expected a file of lockstep all-reduce --json: {}", error.what()));
  }
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
