// `lockstep all-reduce` as somebody who knows nccl-tests reads it.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/command.h"

namespace lockstep {
namespace {

// The words of the lines that are no comments.
std::vector<std::vector<std::string>> rows_of(const std::string& out) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    auto& row = rows.emplace_back();
    for (std::string word; words >> word;) row.push_back(word);
  }
  return rows;
}

TEST(AllReduce, HasTheColumnsOfNcclTests) {
  const CommandResult result = run_command("all-reduce --ranks 2 -b 4K -e 64K -f 4 -n 3 -w 1");
  ASSERT_EQ(result.code, 0) << result.err;
  const auto rows = rows_of(result.out);
  ASSERT_EQ(rows.size(), 3u) << result.out;
  EXPECT_EQ(rows[0][0], "4096");
  EXPECT_EQ(rows[1][0], "16384");
  EXPECT_EQ(rows[2][0], "65536");
  double sum = 0;
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 17u);
    EXPECT_EQ(std::stoll(row[1]) * 4, std::stoll(row[0]));
    EXPECT_EQ(row[2], "float");
    EXPECT_EQ(row[3], "sum");
    for (const int half : {5, 9}) {
      const auto column = [&](int i) { return std::stod(row[static_cast<std::size_t>(half + i)]); };
      // On two ranks bus and algorithm bandwidth are one.
      EXPECT_NEAR(column(1), 1e-3 * std::stod(row[0]) / column(0), 0.006);
      EXPECT_EQ(row[static_cast<std::size_t>(half + 1)], row[static_cast<std::size_t>(half + 2)]);
      EXPECT_EQ(row[static_cast<std::size_t>(half + 3)], "0");
      sum += column(2);
    }
  }
  const std::size_t place = result.out.find("# Avg bus bandwidth    : ");
  ASSERT_NE(place, std::string::npos) << result.out;
  EXPECT_NEAR(std::stod(result.out.substr(place + 25)), sum / 6, 0.006);
  EXPECT_NE(result.out.find("# Out of bounds values : 0 OK"), std::string::npos);
}

TEST(AllReduce, GoesByDefaultThroughAllSizes) {
  const CommandResult result = run_command("all-reduce --ranks 2 -n 1 -w 0 -c 0");
  ASSERT_EQ(result.code, 0) << result.err;
  std::vector<std::string> sizes;
  for (const auto& row : rows_of(result.out)) sizes.push_back(row[0]);
  std::vector<std::string> expected;
  for (int bytes = 8; bytes <= 1 << 20; bytes *= 2) expected.push_back(std::to_string(bytes));
  EXPECT_EQ(sizes, expected);
  // Where one end is given, the other is nccl-tests'.
  EXPECT_EQ(rows_of(run_command("all-reduce --ranks 1 -b 31M -n 1 -w 0 -c 0").out).size(), 2u);
}

TEST(AllReduce, EmulatedLinkShowsItsOwnTimes) {
  const TemporaryDirectory files;
  // So slow that of eight iterations one is not disturbed, however busy the machine is.
  const CommandResult result =
      run_command("all-reduce --emulate pcie5 --slow-motion 400 -b 64K -e 256K -f 2 -n 8 -w 1 -c 0 --json " +
                  (files / "sweep.json"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("emulated, slow motion"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("staged through host memory over PCIe (NCCL SHM), not PCIe peer-to-peer"),
            std::string::npos);
  const auto json = read_json(files / "sweep.json");
  EXPECT_EQ(json.at("emulated"), true);
  EXPECT_EQ(json.at("slow_motion"), 400);
  EXPECT_EQ(json.at("link"), "pcie5");
  EXPECT_EQ(json.at("ranks"), 2);
  ASSERT_EQ(json.at("rows").size(), 3u);
  for (const auto& row : json.at("rows")) {
    const double link_us = 22 + row.at("bytes").get<double>() / 27.4e3;
    EXPECT_NEAR(row.at("in_place").at("min_us").get<double>(), link_us, 0.05 * link_us);
    EXPECT_GE(row.at("in_place").at("us").get<double>(), 0.95 * link_us);
    EXPECT_TRUE(row.at("in_place").at("wrong").is_null());
  }
}

TEST(AllReduce, SlowMotionLeavesTheRanksTheirTime) {
  const TemporaryDirectory files;
  ASSERT_EQ(run_command("all-reduce --emulate nvlink5 -b 1M -e 1M -n 2 -w 1 --json " + (files / "sweep.json")).code, 0);
  // Two ranks on CPUs do not reduce a mebibyte in 3 times what NVLink 5 takes.
  EXPECT_GT(read_json(files / "sweep.json").at("slow_motion"), 1.0);
}

TEST(AllReduce, TakesTheSizesOfAModelsBuckets) {
  const CommandResult result = run_command("all-reduce --ranks 2 --model mlp -n 2 -w 0");
  ASSERT_EQ(result.code, 0) << result.err;
  const auto rows = rows_of(result.out);
  // The first bucket closes at 1 MiB, the second takes the rest; 669 706 parameters, rounded up to chunks.
  ASSERT_EQ(rows.size(), 2u) << result.out;
  EXPECT_GE(std::stoll(rows[0][0]), 1 << 20);
  EXPECT_NEAR(static_cast<double>(std::stoll(rows[0][0]) + std::stoll(rows[1][0])), 4 * 669706, 6 * 4096);
}

TEST(AllReduce, RanksOnCpusProveNothing) {
  const CommandResult result = run_command("all-reduce --ranks 2 -b 8 -e 16 -f 2 -n 1 -w 0 --require-proof");
  EXPECT_EQ(result.code, 3);
  EXPECT_NE(result.err.find("unproven, and --require-proof is given: the ranks are on CPUs"), std::string::npos)
      << result.err;
}

TEST(AllReduce, OneRankCarriesNothing) {
  const CommandResult result = run_command("all-reduce --ranks 1 -b 1K -e 1K -n 2");
  EXPECT_NE(result.out.find("one rank sends nothing"), std::string::npos) << result.out;
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(rows_of(result.out)[0][7], "0.00");
}

TEST(AllReduce, WrongUsageIsOneLine) {
  const struct {
    const char* arguments;
    const char* part;
  } cases[] = {
      {"-b 8Q", "-b: expected a size"},
      {"-b 8 -e 4", "smallest size first"},
      {"-b 1 -e 64G -i 1", "at most 10000 sizes"},
      {"-b 8 -e 64 -f 2 -i 8", "-i, -f: expected one of them"},
      {"-g 2 --ranks 2", "--ranks excludes --ngpus"},
      {"--model mlp -b 8", "expected none of -b, -e, -i, -f"},
      {"-n 0", "-n, -w"},
      {"-d half", "expected float"},
      {"-d bfloat16 --ranks 2", "expected GPUs"},
      {"-o avg", "expected sum"},
      {"--model lenot", "did you mean lenet"},
      {"--emulate nvlnk4", "did you mean nvlink4"},
      {"--emulate nvlink4,pcie5", "expected one link"},
      {"--emulate nvlink4 --device cuda", "expected CPU ranks"},
      {"--emulate nvlink4 --require-proof", "expected a real link"},
  };
  for (const auto& wrong : cases) {
    const CommandResult result = run_command(std::string("all-reduce ") + wrong.arguments);
    EXPECT_EQ(result.code, 2) << wrong.arguments << ": " << result.err;
    expect_one_line(result.err, {wrong.part});
  }
}

}  // namespace
}  // namespace lockstep
