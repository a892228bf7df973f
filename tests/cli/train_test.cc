// Runs of the command from end to end, on made-up images.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/command.h"

namespace lockstep {
namespace {

// Ranks add up the same gradients in another order, which f32 shows.
void expect_near(const std::vector<double>& a, const std::vector<double>& b, double relative) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], relative * std::abs(b[i])) << "step " << i + 1;
}

TEST(Train, TwoRanksGiveTheLossesOfOne) {
  const TemporaryDirectory runs;
  const std::string options = "train lenet --synthetic --global-batch 64 --steps 12 --dropout 0.2 --threads 1 ";
  ASSERT_EQ(run_command(options + "--out " + (runs / "one")).code, 0);
  const CommandResult two = run_command(options + "--ranks 2 --out " + (runs / "two"));
  ASSERT_EQ(two.code, 0) << two.err;
  ASSERT_EQ(run_command(options + "--ranks 2 --accumulate 2 --out " + (runs / "micro")).code, 0);
  const std::vector<double> losses = losses_of(runs / "one");
  ASSERT_EQ(losses.size(), 12u);
  EXPECT_LT(losses.back(), losses.front());
  expect_near(losses_of(runs / "two"), losses, 1e-5);
  expect_near(losses_of(runs / "micro"), losses, 1e-5);
  EXPECT_NE(two.out.find("test accuracy"), std::string::npos) << two.out;
  EXPECT_NE(two.out.find(runs / "two"), std::string::npos) << two.out;
}

TEST(Train, EveryWayOfOverlapGivesTheSameBits) {
  const TemporaryDirectory runs;
  const std::string options = "train mlp --synthetic --global-batch 64 --steps 6 --threads 1 --ranks 2 ";
  for (const std::string way : {"on", "off", "naive"}) {
    ASSERT_EQ(run_command(options + "--overlap " + way + " --out " + (runs / way)).code, 0);
    EXPECT_EQ(losses_of(runs / way), losses_of(runs / "on")) << way;
  }
}

TEST(Train, ResumedEqualsUninterrupted) {
  const TemporaryDirectory runs;
  const std::string options = "train lenet --synthetic --global-batch 32 --dropout 0.1 --optimizer adamw --threads 1 ";
  ASSERT_EQ(run_command(options + "--steps 10 --out " + (runs / "whole")).code, 0);
  ASSERT_EQ(run_command(options + "--steps 6 --checkpoint-every 3 --out " + (runs / "parts")).code, 0);
  const CommandResult resumed = run_command("train lenet --threads 1 --steps 10 --resume " + (runs / "parts"));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(losses_of(runs / "parts"), losses_of(runs / "whole"));
}

TEST(Train, ResumesOnAnotherNumberOfRanks) {
  const TemporaryDirectory runs;
  const std::string options = "train mlp --synthetic --global-batch 32 --threads 1 ";
  ASSERT_EQ(run_command(options + "--steps 8 --out " + (runs / "whole")).code, 0);
  ASSERT_EQ(run_command(options + "--steps 4 --ranks 2 --out " + (runs / "parts")).code, 0);
  const CommandResult resumed = run_command("train mlp --threads 1 --steps 8 --resume " + (runs / "parts"));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_near(losses_of(runs / "parts"), losses_of(runs / "whole"), 1e-5);
}

TEST(Train, ResumingKeepsTheGlobalBatch) {
  const TemporaryDirectory runs;
  ASSERT_EQ(run_command("train mlp --synthetic --threads 1 --ranks 2 --steps 2 --out " + (runs / "run")).code, 0);
  const CommandResult resumed = run_command("train mlp --threads 1 --steps 3 --resume " + (runs / "run"));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  const auto config = read_json(runs / "run/config.json");
  EXPECT_EQ(config.at("ranks"), 1);
  EXPECT_EQ(config.at("global_batch"), 128);
}

TEST(Train, WritesWhatItPromises) {
  const TemporaryDirectory runs;
  const std::string run = runs / "run";
  ASSERT_EQ(run_command("train mlp --synthetic --threads 1 --global-batch 64 --steps 5 --eval-every 2 --schedule "
                        "cosine --lr 0.1 --out " +
                        run)
                .code,
            0);
  const auto lines = read_metrics(run);
  ASSERT_EQ(lines.size(), 5u);
  for (const auto& line : lines) {
    for (const char* key : {"step", "epoch", "loss", "lr", "grad_norm", "step_ms", "samples_per_s"}) {
      EXPECT_TRUE(line.contains(key)) << key << " in " << line;
    }
    const int step = line.at("step");
    EXPECT_EQ(line.contains("val_accuracy"), step % 2 == 0 || step == 5) << line;
    EXPECT_GT(line.at("grad_norm"), 0.0);
  }
  EXPECT_DOUBLE_EQ(lines[0].at("lr"), 0.1);
  EXPECT_LT(lines[4].at("lr"), lines[3].at("lr"));

  const auto config = read_json(run + "/config.json");
  EXPECT_EQ(config.at("model"), "mlp");
  EXPECT_EQ(config.at("options").at("global-batch"), 64);
  EXPECT_EQ(config.at("options").at("seed"), 0);
  EXPECT_TRUE(std::filesystem::exists(run + "/checkpoints"));
}

TEST(Train, TakesMadeUpImagesOfAnotherSize) {
  const TemporaryDirectory runs;
  const std::string run = runs / "run";
  const std::string size = " --synthetic --image-size 9 ";
  ASSERT_EQ(run_command("train mlp --threads 1 --steps 40" + size + "--out " + run).code, 0);
  EXPECT_GT(read_metrics(run).back().at("val_accuracy"), 0.5);
  EXPECT_EQ(run_command("eval mlp" + size + "--checkpoint " + run).code, 0);
  const CommandResult by_itself = run_command("eval mlp --image-size 9 --checkpoint " + run);
  EXPECT_NE(by_itself.out.find("on synthetic (test)"), std::string::npos) << by_itself.out << by_itself.err;
  const CommandResult other = run_command("eval mlp --synthetic --checkpoint " + run);
  EXPECT_EQ(other.code, 2);
  expect_one_line(other.err, {"layers.0.weight", "(512, 81)", "(512, 784)"});
}

TEST(Train, NeverOverwritesARun) {
  const TemporaryDirectory runs;
  const std::string run = runs / "run";
  ASSERT_EQ(run_command("train mlp --synthetic --threads 1 --steps 1 --out " + run).code, 0);
  const CommandResult again = run_command("train mlp --synthetic --threads 1 --steps 1 --out " + run);
  EXPECT_EQ(again.code, 2);
  expect_one_line(again.err, {run, "--resume"});
  EXPECT_EQ(read_metrics(run).size(), 1u);
}

TEST(Train, OneRunAtATimeWritesToADirectory) {
  const TemporaryDirectory runs;
  const std::string run = runs / "run";
  const std::string options = "train mlp --synthetic --threads 1 --global-batch 64 --steps 300 --out " + run;
  CommandResult other;
  std::thread second([&] { other = run_command(options); });
  const CommandResult first = run_command(options);
  second.join();
  EXPECT_EQ(std::min(first.code, other.code), 0) << first.err << other.err;
  EXPECT_EQ(std::max(first.code, other.code), 2) << first.err << other.err;
  EXPECT_EQ(read_metrics(run).size(), 300u);
}

TEST(Train, WritesNoProgressToItsFilesWhereOutputIsClosed) {
  const TemporaryDirectory runs;
  const std::string run = runs / "run";
  const std::string options = " train mlp --synthetic --threads 1 --global-batch 64 --steps 3 --ranks 2 --out " + run;
  const std::string command = LOCKSTEP_COMMAND + options + " <&- >&- 2>&-";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(read_metrics(run).size(), 3u);
}

TEST(Train, StopsWhereTheLossIsNoNumber) {
  const TemporaryDirectory runs;
  const CommandResult result =
      run_command("train mlp --synthetic --ranks 2 --global-batch 64 --steps 200 --lr 1e30 --out " + (runs / "run"));
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.err.find("the loss became"), std::string::npos) << result.err;
}

TEST(Eval, CountsEverySampleOnceOnAnyNumberOfRanks) {
  const TemporaryDirectory runs;
  ASSERT_EQ(run_command("train mlp --synthetic --threads 1 --global-batch 64 --steps 20 --out " + (runs / "run")).code,
            0);
  std::vector<nlohmann::json> results;
  for (int ranks = 1; ranks <= 3; ++ranks) {
    const std::string json = runs / ("eval" + std::to_string(ranks) + ".json");
    const CommandResult result = run_command("eval mlp --synthetic --threads 1 --batch-per-rank 77 --checkpoint " +
                                             (runs / "run") + " --ranks " + std::to_string(ranks) + " --json " + json);
    ASSERT_EQ(result.code, 0) << result.err;
    results.push_back(read_json(json));
  }
  for (const auto& result : results) {
    EXPECT_EQ(result.at("samples"), 10000);
    EXPECT_EQ(result.at("accuracy"), results[0].at("accuracy"));
    EXPECT_NEAR(result.at("loss"), results[0].at("loss"), 1e-6);
  }
  EXPECT_EQ(results[0].at("accuracy"), read_metrics(runs / "run").back().at("val_accuracy"));
}

}  // namespace
}  // namespace lockstep
