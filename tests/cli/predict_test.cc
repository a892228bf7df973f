// `lockstep predict` against what emulated links then show.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/command.h"

namespace lockstep {
namespace {

using nlohmann::json;

json figures_of(const std::string& arguments) {
  const TemporaryDirectory files;
  const CommandResult result = run_command(arguments + " --json " + (files / "figures.json"));
  EXPECT_EQ(result.code, 0) << result.err;
  return read_json(files / "figures.json");
}

double median_of(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

TEST(Predict, StepTimesAreThoseOfAnEmulatedLink) {
  const std::string work = " mlp --batch-per-rank 16 --slow-motion 500 ";
  const json predicted = figures_of("predict --links pcie3" + work);
  const json measured = figures_of("measure --emulate pcie3 --steps 5 --warmup 1" + work);
  EXPECT_EQ(predicted.at("emulated"), true);
  EXPECT_EQ(predicted.at("slow_motion"), 500);
  const double step_ms = predicted.at("rows")[0].at("links")[0].at("step_ms");
  EXPECT_NEAR(median_of(measured.at("step_ms")) / step_ms, 1, 0.1);
}

TEST(Predict, FitsASweepAndMarksWhatItExtrapolates) {
  const TemporaryDirectory files;
  const CommandResult sweep = run_command(
      "all-reduce --emulate pcie5 --slow-motion 300 -b 1K -e 1M -f 4 -n 2 -w 0 --json " + (files / "sweep.json"));
  ASSERT_EQ(sweep.code, 0) << sweep.err;
  const json predicted = figures_of("predict lenet --batch-per-rank 4,8 --ranks 2,4 --steps 2 --warmup 1 --sweeps " +
                                    (files / "sweep.json") + " --links pcie5");
  const json& regimes = predicted.at("cost_models")[0].at("regimes");
  // Of a million bytes: 22 us and 36.5.
  EXPECT_NEAR(regimes.back().at("alpha_us").get<double>() + 1e6 * regimes.back().at("beta_us_per_byte").get<double>(),
              22 + 1e6 / 27.4e3, 6);
  const json& rows = predicted.at("rows");
  ASSERT_EQ(rows.size(), 4u);
  for (const json& row : rows) {
    for (const json& link : row.at("links")) {
      EXPECT_EQ(link.at("extrapolated"), row.at("ranks") == 4);
      EXPECT_LE(link.at("low_ms"), link.at("step_ms"));
      EXPECT_LE(link.at("step_ms"), link.at("high_ms"));
      EXPECT_GE(link.at("step_ms"), row.at("alone_ms"));
    }
  }
  EXPECT_EQ(rows[1].at("batch_per_rank"), 8);
  EXPECT_EQ(rows[2].at("ranks"), 4);
}

TEST(Predict, WrongUsageIsOneLine) {
  const struct {
    const char* arguments;
    const char* part;
  } cases[] = {
      {"mlpp", "did you mean mlp"},
      {"mlp --links nvlink9", "nvlink9"},
      {"mlp --sweeps /nowhere.json", "cannot be read"},
      {"mlp --sweeps CMakeLists.txt", "expected a JSON object"},
      {"mlp --batch-per-rank 4,x", "--batch-per-rank"},
      {"mlp --bucket-cap-mib 0", "--bucket-cap-mib"},
      {"mlp --slow-motion 0", "--slow-motion"},
  };
  for (const auto& wrong : cases) {
    const CommandResult result = run_command(std::string("predict ") + wrong.arguments);
    EXPECT_EQ(result.code, 2) << wrong.arguments << ": " << result.err;
    expect_one_line(result.err, {wrong.part});
  }
}

// Buckets of more than a MiB from all-reduces of 8 to 64 bytes.
TEST(Predict, SizesThatWereNotMeasuredAreExtrapolated) {
  const TemporaryDirectory files;
  ASSERT_EQ(run_command("all-reduce --ranks 2 -b 8 -e 64 -f 2 -n 2 -w 1 --json " + (files / "sweep.json")).code, 0);
  const std::string work = "predict mlp --batch-per-rank 1 --steps 2 --warmup 1 --sweeps " + (files / "sweep.json");
  const json link = figures_of(work).at("rows")[0].at("links")[0];
  EXPECT_EQ(link.at("extrapolated"), true);
  EXPECT_GT(link.at("high_ms"), 100 * link.at("low_ms").get<double>());
  EXPECT_NE(run_command(work).out.find("measured on 2 ranks, from 8 to 64 bytes"), std::string::npos);
}

TEST(Predict, SweepsThatAreDamagedAreRefused) {
  const TemporaryDirectory files;
  const json sound = {
      {"ranks", 2},
      {"link", "pcie"},
      {"shared_link", true},
      {"rows", {{{"bytes", 1024}, {"in_place", {{"us", 20.0}}}}, {{"bytes", 4096}, {"in_place", {{"us", 21.0}}}}}}};
  const struct {
    const char* place;
    json value;
    const char* part;
  } cases[] = {
      {"/rows/0/bytes", 2.5, "bytes: expected a whole number"},
      {"/rows/0/bytes", 1e30, "bytes: expected"},
      {"/rows/0/bytes", nullptr, "bytes: expected a value"},
      {"/rows/1/in_place/us", -1, "us: expected"},
      {"/emulated", "yes", "emulated: expected true or false"},
      {"/ranks", 4294967298, "ranks: expected"},
      {"/shared_link", 1, "shared_link: expected true"},
      {"/rows", 7, "found no rows"},
      {"/wrong", 5, "got 5 wrong elements"},
      {"/probe", {{"verdict", "contradicted"}, {"reason", "NVLink carried all"}}, "another link: NVLink carried all"}};
  for (const auto& wrong : cases) {
    json sweep = sound;
    sweep[json::json_pointer(wrong.place)] = wrong.value;
    std::ofstream(files / "sweep.json") << sweep;
    const CommandResult result = run_command("predict mlp --sweeps " + (files / "sweep.json"));
    EXPECT_EQ(result.code, 2) << wrong.place << ": " << result.out;
    expect_one_line(result.err, {"--sweeps", "sweep.json", wrong.part});
  }
}

}  // namespace
}  // namespace lockstep
