// Training on GPUs through the command. This process never opens the driver: it only starts others.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/command.h"
#include "tests/support/gpus.h"

namespace lockstep {
namespace {

using testing::gpus;
using testing::ranks_on_gpus;

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double relative) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], relative * std::abs(b[i])) << "step " << i + 1;
}

// The losses of 20 steps of `model`.
std::vector<double> losses_on(const std::string& options, const std::string& run) {
  const CommandResult result =
      run_gpu_command("train " + options + " --synthetic --global-batch 64 --steps 20 --out " + run);
  EXPECT_EQ(result.code, 0) << result.err;
  return losses_of(run);
}

void expect_the_cpus_losses(const std::string& options) {
  SKIP_WITHOUT_GPUS(1);
  const TemporaryDirectory runs;
  const std::vector<double> cpu = losses_on(options + " --device cpu --ranks 1", runs / "cpu");
  ASSERT_EQ(cpu.size(), 20u);
  EXPECT_LT(cpu.back(), cpu.front());
  expect_near(losses_on(options + " --device cuda --ranks 1", runs / "one"), cpu, 1e-4);
  expect_near(losses_on(options + " --device cuda --ranks 1 --accumulate 2", runs / "micro"), cpu, 1e-4);
  if (ranks_on_gpus() >= 2) expect_near(losses_on(options + " --device cuda --ranks 2", runs / "two"), cpu, 1e-4);
}

TEST(Gpu, MlpHasTheLossesOfTheCpu) { expect_the_cpus_losses("mlp --dropout 0.2 --clip 1 --weight-decay 0.01"); }
TEST(Gpu, LenetHasTheLossesOfTheCpu) { expect_the_cpus_losses("lenet --dropout 0.1 --optimizer adamw"); }

// Rounding to bf16 moves these losses, which fall from 2.3, by some thousandths.
void expect_near_in_bf16(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 0.02) << "step " << i + 1;
  EXPECT_NE(a, b) << "nothing was rounded";
}

TEST(Gpu, Bf16HasNearlyTheLossesOfF32) {
  SKIP_WITHOUT_GPUS(1);
  const TemporaryDirectory runs;
  const std::string one = "mlp --lr 0.01 --device cuda --ranks 1 ";
  const std::string two = "mlp --lr 0.01 --device cuda --ranks 2 ";
  const std::vector<double> f32 = losses_on(one, runs / "f32");
  int run = 0;
  for (const std::string options : {"--precision bf16", "--precision bf16 --grad-dtype bf16", "--grad-dtype bf16",
                                    "--precision bf16 --grad-dtype bf16 --accumulate 2"}) {
    expect_near_in_bf16(losses_on(one + options, runs / std::to_string(++run)), f32);
    if (ranks_on_gpus() >= 2) expect_near_in_bf16(losses_on(two + options, runs / std::to_string(++run)), f32);
  }
}

// Checkpoints hold f32 masters, whatever a run computes in.
TEST(Gpu, ACheckpointServesEitherPrecision) {
  SKIP_WITHOUT_GPUS(1);
  const TemporaryDirectory runs;
  const std::vector<double> f32 = losses_on("mlp --lr 0.01 --device cuda --ranks 1", runs / "whole");
  for (const std::string from : {"f32", "bf16"}) {
    const std::string run = runs / from;
    const std::string started = "train mlp --lr 0.01 --device cuda --ranks 1 --synthetic --global-batch 64 --steps 12";
    ASSERT_EQ(run_gpu_command(started + " --precision " + from + " --out " + run).code, 0);
    double accuracies[2] = {};
    for (const std::string in : {"f32", "bf16"}) {
      const std::string json = runs / (from + in + ".json");
      const CommandResult result = run_gpu_command("eval mlp --synthetic --device cuda --ranks 1 --precision " + in +
                                                   " --checkpoint " + run + " --json " + json);
      ASSERT_EQ(result.code, 0) << result.err;
      accuracies[in == "f32" ? 0 : 1] = read_json(json).at("accuracy");
    }
    EXPECT_GT(accuracies[0], 0.5);
    EXPECT_NEAR(accuracies[1], accuracies[0], 0.02);
    const std::string other = from == "f32" ? "bf16" : "f32";
    const CommandResult resumed =
        run_gpu_command("train mlp --device cuda --ranks 1 --steps 20 --precision " + other + " --resume " + run);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    expect_near_in_bf16(losses_of(run), f32);
  }
}

TEST(Gpu, AllVisibleOnesAreUsedByDefault) {
  SKIP_WITHOUT_GPUS(1);
  const TemporaryDirectory runs;
  const std::string batch = " --batch-per-rank 32 --synthetic --steps 3 ";
  const CommandResult all = run_gpu_command("train mlp" + batch + "--out " + (runs / "all"));
  ASSERT_EQ(all.code, 0) << all.err;
  const std::string expected = gpus() == 1 ? "1 GPU (" : std::to_string(gpus()) + " GPUs (";
  EXPECT_NE(all.out.find(expected), std::string::npos) << all.out;
  // The first visible one only.
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string list = visible != nullptr ? visible : "0";
  const CommandResult one = run_gpu_command("train mlp" + batch + "--out " + (runs / "one"),
                                            "CUDA_VISIBLE_DEVICES=" + list.substr(0, list.find(',')));
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_NE(one.out.find("1 GPU ("), std::string::npos) << one.out;
}

TEST(Gpu, MoreRanksThanGpusAreRefused) {
  SKIP_WITHOUT_GPUS(1);
  if (gpus_are_shared()) GTEST_SKIP() << "LOCKSTEP_SHARE_GPUS is set";
  const CommandResult result =
      run_gpu_command("train mlp --synthetic --device cuda --ranks " + std::to_string(gpus() + 1));
  EXPECT_EQ(result.code, 2);
  expect_one_line(result.err, {"at most " + std::to_string(gpus()) + " ranks", "--device cpu"});
}

TEST(Gpu, ALossThatIsNoNumberEndsTheRun) {
  SKIP_WITHOUT_GPUS(1);
  for (const std::string graph : {"on", "off"}) {
    const TemporaryDirectory runs;
    const CommandResult result = run_gpu_command("train mlp --synthetic --device cuda --steps 200 --lr 1e30 --graph " +
                                                 graph + " --out " + (runs / "nan"));
    EXPECT_EQ(result.code, 1);
    expect_one_line(result.err, {"the loss became", "in step", "--lr"});
  }
}

TEST(Gpu, OutOfMemoryPrintsATableByPurpose) {
  SKIP_WITHOUT_GPUS(1);
  const TemporaryDirectory runs;
  const CommandResult result = run_gpu_command(
      "train vgg16 --synthetic --device cuda --ranks 1 --batch-per-rank 8000 --steps 2 --out " + (runs / "oom"));
  EXPECT_EQ(result.code, 1);
  for (const char* part :
       {"out of memory on GPU 0", "asked for", "parameters", "activations", "communication", "free", "total"}) {
    EXPECT_NE(result.err.find(part), std::string::npos) << "no '" << part << "' in: " << result.err;
  }
}

TEST(Gpu, ADeviceThatIsNotThereIsNamed) {
  SKIP_WITHOUT_GPUS(1);
  const CommandResult result =
      run_gpu_command("train mlp --synthetic --device cuda --steps 1", "CUDA_VISIBLE_DEVICES=99");
  EXPECT_EQ(result.code, 2);
  expect_one_line(result.err, {"--device cuda", "expected a GPU, got none"});
}

TEST(Gpu, DeterministicRunsHaveEqualBits) {
  SKIP_WITHOUT_GPUS(1);
  const TemporaryDirectory runs;
  const std::string options = "lenet --deterministic --device cuda --ranks 1 --dropout 0.1 ";
  const std::vector<double> one = losses_on(options, runs / "one");
  EXPECT_EQ(one, losses_on(options, runs / "two"));
  EXPECT_EQ(one, losses_on(options + "--graph off", runs / "eager"));
}

TEST(Gpu, ResumedRunContinuesTheLosses) {
  SKIP_WITHOUT_GPUS(1);
  const TemporaryDirectory runs;
  const std::string options = "train mlp --synthetic --device cuda --ranks 1 --global-batch 32 --dropout 0.1 ";
  ASSERT_EQ(run_gpu_command(options + "--steps 8 --out " + (runs / "whole")).code, 0);
  ASSERT_EQ(run_gpu_command(options + "--steps 4 --out " + (runs / "parts")).code, 0);
  const CommandResult resumed = run_gpu_command("train mlp --device cuda --steps 8 --resume " + (runs / "parts"));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_near(losses_of(runs / "parts"), losses_of(runs / "whole"), 1e-5);
}

// Empty where the first two GPUs are not joined by NVLink.
std::string nvlink_between_gpus() {
  if (gpus() < 2) return {};
  const TemporaryDirectory files;
  const std::string file = files / "topology.json";
  EXPECT_EQ(run_gpu_command("topology --json " + file).code, 0);
  const nlohmann::json topology = read_json(file);
  return topology["pairs"].empty() || topology["pairs"][0]["nvlinks"] == 0 ? "" : topology["pairs"][0]["path"];
}

#define SKIP_WITHOUT_NVLINK() \
  if (nvlink_between_gpus().empty()) GTEST_SKIP() << "needs two GPUs joined by NVLink"

TEST(Gpu, EveryLinkModeIsProven) {
  const TemporaryDirectory files;
  SKIP_WITHOUT_NVLINK();
  for (const std::string mode : {"auto", "nvlink", "pcie", "net"}) {
    const std::string run = files / mode;
    const CommandResult result = run_gpu_command(
        "train mlp --synthetic --device cuda --ranks 2 --global-batch 64 --steps 60 --require-proof "
        "--link " +
        mode + " --out " + run);
    ASSERT_EQ(result.code, 0) << result.err;
    const nlohmann::json link = read_json(run + "/config.json")["link"];
    EXPECT_EQ(link["mode"], mode);
    EXPECT_EQ(link["probe"]["verdict"], "proven") << link;
    EXPECT_EQ(link["probe"]["over_nvlink"], mode == "auto" || mode == "nvlink") << link;
    std::cout << result.out.substr(0, result.out.find("run directory")) << std::endl;
  }
}

TEST(Gpu, WithLinkSeesWhatAProgramMoves) {
  const TemporaryDirectory files;
  SKIP_WITHOUT_NVLINK();
  const std::string training =
      command_path() + " train mlp --synthetic --device cuda --ranks 2 --global-batch 64 --steps 60";
  for (const std::string mode : {"nvlink", "pcie", "net"}) {
    const CommandResult result = run_gpu_command("with-link " + mode + " --require-proof -- " + training +
                                                 " --require-proof --out " + (files / mode));
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.err.find(": proven: NVLink carried"), std::string::npos) << result.err;
    std::cout << result.err << std::endl;
  }
  EXPECT_EQ(run_gpu_command("with-link pcie -- " + training + " --link nvlink --out " + (files / "both")).code, 3);
}

// What one GPU that several ranks share can show, too: everything over the network.
constexpr const char* kOverNet = " --device cuda --ranks 2 --link net ";

TEST(Gpu, AllReducesOverTheNetworkAreRight) {
  SKIP_WITHOUT_GPUS(2);
  const TemporaryDirectory files;
  const CommandResult result = run_gpu_command(
      std::string("all-reduce") + kOverNet + "-b 8 -e 16M -f 8 --json " + (files / "sweep.json"), "", 120);
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json sweep = read_json(files / "sweep.json");
  EXPECT_EQ(sweep["wrong"], 0);
  EXPECT_EQ(sweep["peak_gb_s"], nullptr) << "that of the network is not known";
  EXPECT_EQ(sweep["shared_link"], true);
  EXPECT_FALSE(sweep["probe"]["over_nvlink"]);
  for (const auto& row : sweep["rows"]) EXPECT_GT(row["in_place"]["busbw"], 0.0) << row;
}

TEST(Gpu, MeasureReportsWhatItCouldNotProve) {
  SKIP_WITHOUT_GPUS(2);
  const TemporaryDirectory files;
  const std::string one_arm = std::string("measure mlp --batch-per-rank 16 --steps 2 --warmup 1 --timeline") +
                              kOverNet + "--json " + (files / "arm.json");
  ASSERT_EQ(run_gpu_command(one_arm, "", 120).code, 0);
  const nlohmann::json arm = read_json(files / "arm.json");
  EXPECT_EQ(arm["step_ms"].size(), 2u);
  EXPECT_EQ(arm["training"]["verdict"], "unproven") << "three steps are too few bytes: " << arm["training"];
  EXPECT_EQ(arm["link"]["variables"]["NCCL_NVLS_ENABLE"], "0");
  EXPECT_EQ(arm["link"]["sources"]["NCCL_SHM_DISABLE"], "lockstep");
  std::filesystem::remove(files / "arm.json");
  EXPECT_EQ(run_gpu_command(one_arm + " --require-proof", "", 120).code, 3);
  EXPECT_EQ(std::filesystem::exists(files / "arm.json"), arm["probe"]["verdict"] == "proven")
      << "the figures come first, unless nothing was trained";
}

TEST(Gpu, WithLinkRunsOverTheNetwork) {
  SKIP_WITHOUT_GPUS(2);
  const TemporaryDirectory files;
  const CommandResult result = run_gpu_command(
      "with-link net --json " + (files / "proof.json") + " -- " + command_path() +
          " train mlp --synthetic --device cuda --ranks 2 --global-batch 64 --steps 60 --out " + (files / "run"),
      "", 120);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("P2P 0, SHM 0, NET "), std::string::npos) << result.err;
  const nlohmann::json proof = read_json(files / "proof.json");
  EXPECT_NE(proof["proof"]["verdict"], "contradicted");
  EXPECT_FALSE(proof["proof"]["over_nvlink"]);
}

// `options` of compare, and what it wrote.
nlohmann::json compared(const std::string& options) {
  const TemporaryDirectory files;
  const CommandResult result = run_gpu_command("compare " + options + " --json " + (files / "compare.json"), "", 800);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  std::cout << result.out << std::endl;
  return read_json(files / "compare.json");
}

bool holds_one(const nlohmann::json& result) {
  return result["speedup"]["low"] <= 1.0 && result["speedup"]["high"] >= 1.0;
}

TEST(Gpu, TheNetworkAgainstItselfIsNoDifference) {
  SKIP_WITHOUT_GPUS(2);
  const nlohmann::json result =
      compared("mlp --links net,net --ranks 2 --batch-per-rank 16 --repeats 3 --steps 5 --warmup 2");
  ASSERT_TRUE(result.is_object());
  EXPECT_EQ(result["emulated"], false);
  EXPECT_NEAR(result["speedup"]["value"].get<double>(), 1.0, 0.3);
  for (const auto& arm : result["arms"]) {
    EXPECT_NE(arm["proof"], "contradicted") << arm["proof_reason"];
    for (const auto& run : arm["runs"]) EXPECT_EQ(run["link"]["variables"]["NCCL_NVLS_ENABLE"], "0");
  }
}

TEST(Gpu, NvlinkDoublesVggAtSmallBatchesAndIsPredicted) {
  SKIP_WITHOUT_NVLINK();
  const nlohmann::json result = compared("vgg16 --batch-per-rank 32 --ranks 2 --require-proof");
  ASSERT_TRUE(result.is_object());
  EXPECT_GE(result["speedup"]["value"], 2.0);
  for (const auto& arm : result["arms"]) {
    EXPECT_EQ(arm["proof"], "proven") << arm["proof_reason"];
    EXPECT_NEAR(arm["predicted_ms"].get<double>() / arm["step_ms"]["median"].get<double>(), 1, 0.1) << arm["link"];
  }
}

TEST(Gpu, AComputeBoundTrainingGainsNothingAndSaysWhy) {
  SKIP_WITHOUT_NVLINK();
  const nlohmann::json result = compared("vgg16 --batch-per-rank 256 --ranks 2 --repeats 3");
  ASSERT_TRUE(result.is_object());
  EXPECT_NEAR(result["speedup"]["value"].get<double>(), 1.0, 0.1);
  EXPECT_NE(result["conclusion"].get<std::string>().find("compute-bound"), std::string::npos) << result["conclusion"];
}

TEST(Gpu, NvlinkAgainstItselfHoldsOne) {
  SKIP_WITHOUT_NVLINK();
  int held = 0;
  for (int i = 0; i < 4; ++i) {
    if (holds_one(compared("mlp --links nvlink,nvlink --ranks 2 --batch-per-rank 64"))) ++held;
  }
  EXPECT_GE(held, 2) << "by chance fewer hold once in 2000 times";
}

TEST(Gpu, OneGpuHasNothingToCompare) {
  SKIP_WITHOUT_GPUS(1);
  if (gpus_are_shared()) GTEST_SKIP() << "LOCKSTEP_SHARE_GPUS is set";
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string list = visible != nullptr ? visible : "0";
  const CommandResult result = run_gpu_command("compare mlp", "CUDA_VISIBLE_DEVICES=" + list.substr(0, list.find(',')));
  EXPECT_EQ(result.code, 2);
  expect_one_line(result.err, {"at least 2 GPUs, got 1", "--emulate nvlink4,pcie5"});
}

// LOCKSTEP_NCCL_TESTS names nccl-tests' all_reduce_perf.
TEST(Gpu, AllReducesTakeWhatNcclTestsSay) {
  const char* program = std::getenv("LOCKSTEP_NCCL_TESTS");
  if (program == nullptr) GTEST_SKIP() << "needs LOCKSTEP_NCCL_TESTS";
  SKIP_WITHOUT_NVLINK();
  const TemporaryDirectory files;
  const std::string sizes = " -b 8 -e 1G -f 8 -n 50 -w 10 -g 2";
  ASSERT_EQ(std::system(("NCCL_NVLS_ENABLE=0 " + (program + sizes) + " > " + (files / "theirs")).c_str()), 0);
  ASSERT_EQ(run_gpu_command("all-reduce" + sizes + " --json " + (files / "ours"), "", 300).code, 0);
  std::map<std::int64_t, double> theirs;
  std::ifstream table(files / "theirs");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::int64_t bytes = 0, count = 0;
    std::string type, op, root;
    double us = 0;
    if (words >> bytes >> count >> type >> op >> root >> us) theirs[bytes] = us;
  }
  EXPECT_GE(theirs.size(), 9u);
  for (const auto& row : read_json(files / "ours")["rows"]) {
    const std::int64_t bytes = row["bytes"];
    const double us = row["out_of_place"]["us"];
    ASSERT_TRUE(theirs.contains(bytes)) << bytes;
    if (bytes >= 64 << 20) {
      EXPECT_NEAR(us / theirs[bytes], 1, 0.02) << bytes;
    } else if (bytes <= 64 << 10) {
      EXPECT_NEAR(us, theirs[bytes], 2) << bytes;
    }
  }
}

}  // namespace
}  // namespace lockstep
