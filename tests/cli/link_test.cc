// The switch, the proof and the topology as a user meets them, on machines that a fake driver library makes up.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/command.h"
#include "tests/support/fake_nvml.h"
#include "tests/support/text.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::contains;
using testing::fake_h200;
using testing::fake_machine;
using testing::FakeNvml;

const char* const kTraining = "train mlp --synthetic --global-batch 64 --threads 1 --steps 2 --device cpu ";
const char* const kStaged = "staged through host memory over PCIe (NCCL SHM), not PCIe peer-to-peer";

// Two GPUs whose counters are what two files hold, for a program to write: NVLink in KiB, PCIe in bytes.
class CountedMachine {
 public:
  CountedMachine() : nvml_(machine()) {
    std::ofstream(nvlink()) << 1000;
    std::ofstream(pcie()) << 5'000'000'000;  // beyond 32 bits: however busy this machine is, no wrap is missed
  }

  // Shell text that moves so many bytes over each of the links, as far as the driver knows. In steps, as PCIe cannot
  // move more at once than it could in the time.
  std::string moves(double nvlink_bytes, double pcie_bytes) const {
    const auto grow = [](const std::string& file, double bytes) {
      return "echo $(($(cat " + file + ") + " + std::to_string(static_cast<long>(bytes / 5)) + ")) > " + file +
             ".new && mv " + file + ".new " + file + "; ";
    };
    return "for i in 1 2 3 4 5; do " + grow(nvlink(), nvlink_bytes / 1024) + grow(pcie(), pcie_bytes) +
           "sleep 0.02; done";
  }

 private:
  json machine() const {
    auto gpus = std::vector{fake_h200(0), fake_h200(1)};
    for (auto& gpu : gpus) {
      for (const char* field : {"138", "139"}) gpu["counters"][field] = {{"file", nvlink()}};
      for (const char* field : {"197", "198"}) gpu["counters"][field] = {{"file", pcie()}};
    }
    return fake_machine(gpus);
  }
  std::string nvlink() const { return folder_ / "nvlink"; }
  std::string pcie() const { return folder_ / "pcie"; }

  TemporaryDirectory folder_;
  FakeNvml nvml_;
};

CommandResult with_link(const std::string& options, const std::string& shell, const std::string& environment = "") {
  return run_gpu_command("with-link " + options + " -- sh -c '" + shell + "'", environment);
}

TEST(WithLink, TheProgramSeesTheVariablesOfTheMode) {
  for (const char* mode : {"auto", "nvlink", "pcie", "net"}) {
    const CommandResult result = with_link(mode, "env", "-u NCCL_NVLS_ENABLE");
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(contains(result.out, "NCCL_NVLS_ENABLE=0\n")) << mode << result.out;
    EXPECT_EQ(contains(result.out, "NCCL_P2P_DISABLE=1\n"), mode == std::string("pcie") || mode == std::string("net"));
    EXPECT_TRUE(contains(with_link(mode, "env", "NCCL_NVLS_ENABLE=").out, "NCCL_NVLS_ENABLE=0\n")) << mode;
  }
  const CommandResult chosen = with_link("nvlink", "env", "NCCL_NVLS_ENABLE=1");
  EXPECT_TRUE(contains(chosen.out, "NCCL_NVLS_ENABLE=1\n")) << chosen.out;
  EXPECT_TRUE(contains(chosen.err, "NCCL_NVLS_ENABLE=1 from the environment was kept")) << chosen.err;
  EXPECT_TRUE(contains(chosen.err, "NVLS allowed")) << chosen.err;
}

TEST(WithLink, TheBytesDecide) {
  const CountedMachine machine;
  const CommandResult staged = with_link("pcie", machine.moves(1e6, 400e6));
  EXPECT_EQ(staged.code, 0) << staged.err;
  EXPECT_TRUE(contains(staged.err, ": proven: NVLink carried 0.00 GB")) << staged.err;
  EXPECT_TRUE(contains(staged.err, kStaged)) << staged.err;
  EXPECT_TRUE(contains(staged.err, "NVLS off")) << staged.err;
  EXPECT_TRUE(contains(with_link("pcie", machine.moves(0, 400e6)).err, "unproven"));  // counters that never move
  const CommandResult leaking = with_link("pcie", machine.moves(400e6, 100e6));
  EXPECT_EQ(leaking.code, 3) << leaking.err;
  EXPECT_TRUE(contains(leaking.err, "contradicted")) << leaking.err;
  EXPECT_EQ(with_link("nvlink --require-proof", machine.moves(400e6, 100e6)).code, 0);
  // What PCIe carried may be the program's input.
  EXPECT_TRUE(contains(with_link("nvlink", machine.moves(0, 400e6)).err, "unproven"));
  const CommandResult idle = with_link("pcie", machine.moves(0, 0));
  EXPECT_EQ(idle.code, 0) << idle.err;
  EXPECT_TRUE(contains(idle.err, "unproven")) << idle.err;
  EXPECT_EQ(with_link("pcie --require-proof", machine.moves(0, 0)).code, 3);
}

TEST(WithLink, NcclsOwnLogIsHeardToo) {
  const CountedMachine machine;
  const auto logging = [&](const std::string& transport, const char* mode = "pcie") {
    // As NCCL does, to the file that it is told.
    return with_link(mode,
                     "f=$(echo $NCCL_DEBUG_FILE | sed s/%h.%p/h.1/); "
                     "echo \"h:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via " +
                         transport + "\" > $f; " + machine.moves(0, 400e6));
  };
  const CommandResult staged = logging("SHM/direct/direct");
  EXPECT_TRUE(contains(staged.err, "SHM 1, NET 0 connections")) << staged.err;
  EXPECT_TRUE(contains(staged.err, ": proven:")) << staged.err;
  const CommandResult net = logging("NET/Socket/0");
  EXPECT_TRUE(contains(net.err, ": unproven:")) << net.err;
  EXPECT_TRUE(contains(net.err, "connections over the network")) << net.err;
  const CommandResult avoided = logging("SHM/direct/direct", "nvlink");
  EXPECT_EQ(avoided.code, 3) << avoided.err;
  EXPECT_TRUE(contains(avoided.err, "by its log NCCL avoids NVLink")) << avoided.err;
  // A user's own log stays where it is.
  EXPECT_TRUE(contains(with_link("pcie", "env", "NCCL_DEBUG=WARN").out, "NCCL_DEBUG=WARN\n"));
  // Alone it means nothing to NCCL; beside our NCCL_DEBUG it would hide the connections.
  EXPECT_TRUE(contains(with_link("pcie", "env", "NCCL_DEBUG_SUBSYS=COLL").out, "NCCL_DEBUG_SUBSYS=INIT\n"));
}

// What a user's file held before is another run's.
TEST(WithLink, ALogThatIsNotOfThisRunSaysNothing) {
  const CountedMachine machine;
  const TemporaryDirectory files;
  const std::string line = "h:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct";
  std::ofstream(files / "log") << line << '\n';
  const std::string users = "NCCL_DEBUG=INFO NCCL_DEBUG_FILE=" + (files / "log");
  const CommandResult silent = with_link("nvlink", machine.moves(0, 400e6), users);
  EXPECT_EQ(silent.code, 0) << silent.err;
  EXPECT_TRUE(contains(silent.err, ": unproven:")) << silent.err;
  EXPECT_FALSE(contains(silent.err, "SHM 1")) << silent.err;
  const std::string logs = "echo \"" + line + "\" > $NCCL_DEBUG_FILE; ";
  EXPECT_TRUE(contains(with_link("nvlink", logs + machine.moves(0, 400e6), users).err, "SHM 1"));
}

// Who reads a pipe is somebody else.
TEST(WithLink, ALogThatIsNoFileIsNotWaitedFor) {
  const TemporaryDirectory files;
  const std::string pipe = files / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& file : {pipe, std::string("/dev/zero")}) {
    const CommandResult result =
        with_link("pcie", "touch $NCCL_DEBUG_FILE", "timeout 20 env NCCL_DEBUG=INFO NCCL_DEBUG_FILE=" + file);
    EXPECT_EQ(result.code, 0) << file << ": " << result.err;
  }
  const CommandResult own = with_link("pcie", "mkfifo $(dirname $NCCL_DEBUG_FILE)/pipe", "timeout 20 env");
  EXPECT_EQ(own.code, 0) << own.err;
}

// A program that meets others by MPI is none of ours: nothing is asked of how it meets them.
TEST(WithLink, WhateverStartedItTheProgramsLogIsHeard) {
  const std::string mpi = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=";
  for (const std::string& launcher : {mpi + "1 OMPI_COMM_WORLD_LOCAL_SIZE=4", mpi + "0 OMPI_COMM_WORLD_LOCAL_SIZE=2",
                                      std::string("RANK=0"), std::string("WORLD_SIZE=x")}) {
    const CommandResult result =
        with_link("pcie",
                  "f=$(echo $NCCL_DEBUG_FILE | sed s/%h.%p/h.1/); echo $f; "
                  "echo \"h:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\" > $f",
                  launcher);
    EXPECT_EQ(result.code, 0) << launcher << ": " << result.err;
    EXPECT_TRUE(contains(result.err, "SHM 1, NET 0 connections")) << launcher << ": " << result.err;
    const std::filesystem::path file = result.out.substr(0, result.out.find('\n'));
    EXPECT_EQ(file.filename(), "h.1");
    EXPECT_FALSE(std::filesystem::exists(file.parent_path())) << file;
  }
}

// config.json tells what the user has set.
TEST(WithLink, OwnSettingsOfTheLogAreNotTheUsers) {
  const TemporaryDirectory runs;
  const auto environment = [&](const std::string& prefix) {
    const CommandResult result = run_command("with-link auto -- " + prefix + " " + command_path() + " " + kTraining +
                                             "--ranks 1 --out " + (runs / "run"));
    EXPECT_EQ(result.code, 0) << result.err;
    json read = read_json(runs / "run/config.json")["environment"];
    std::filesystem::remove_all(runs / "run");
    return read;
  };
  const json own = environment("");
  EXPECT_FALSE(own.contains("NCCL_DEBUG")) << own;
  EXPECT_FALSE(own.contains("NCCL_DEBUG_FILE")) << own;
  EXPECT_FALSE(own.contains("NCCL_DEBUG_SUBSYS")) << own;
  const json users = environment("env NCCL_DEBUG=WARN NCCL_DEBUG_FILE=" + (runs / "log"));
  EXPECT_EQ(users["NCCL_DEBUG"], "WARN");
  EXPECT_EQ(users["NCCL_DEBUG_FILE"], runs / "log");
}

TEST(WithLink, BytesOverNvlinkContradictWhereThoseOfPcieCannotBeRead) {
  const TemporaryDirectory files;
  std::ofstream(files / "kib") << 1000;
  auto gpus = std::vector{fake_h200(0), fake_h200(1)};
  for (auto& gpu : gpus) {
    for (const char* field : {"138", "139"}) gpu["counters"][field] = {{"file", files / "kib"}};
    for (const char* field : {"197", "198"}) gpu["counters"][field] = {{"error", 3}};
  }
  const FakeNvml fake(fake_machine(gpus));
  const CommandResult result = with_link("pcie", "echo 500000000 > " + (files / "kib"));  // 512 GB, in a moment
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_TRUE(contains(result.err, "contradicted: NVLink carried 2048.00 GB, PCIe at most ")) << result.err;
}

TEST(WithLink, EverythingIsInTheJson) {
  const CountedMachine machine;
  const TemporaryDirectory files;
  const CommandResult result =
      with_link("auto --json " + (files / "proof.json"), machine.moves(512e6, 100e6) + "; exit 7");
  EXPECT_EQ(result.code, 7);
  const json proof = read_json(files / "proof.json");
  EXPECT_EQ(proof["exit_code"], 7);
  EXPECT_GT(proof["seconds"], 0.1);
  EXPECT_EQ(proof["link"]["variables"]["NCCL_NVLS_ENABLE"], "0");
  EXPECT_EQ(proof["proof"]["verdict"], "proven");
  EXPECT_EQ(proof["proof"]["over_nvlink"], true);
  ASSERT_EQ(proof["proof"]["gpus"].size(), 2u);
  EXPECT_EQ(proof["proof"]["gpus"][0]["nvlink_sent_bytes"], 512'000'000);
  EXPECT_EQ(proof["proof"]["gpus"][1]["pcie_received_bytes"], 100'000'000);
}

TEST(WithLink, AFullDiskLeavesTheEarlierResult) {
  const TemporaryDirectory files;
  const std::string file = files / "proof.json";
  ASSERT_EQ(run_command("with-link auto --json " + file + " -- true first").code, 0);
  const CommandResult full = run_command("with-link auto --json " + file + " -- true " + std::string(5000, 'x'), "",
                                         "sh -c 'trap \"\" XFSZ; ulimit -f 4; exec \"$@\"' sh");
  EXPECT_EQ(full.code, 1);
  EXPECT_TRUE(contains(full.err, "--json " + file + ": cannot be written")) << full.err;
  EXPECT_EQ(read_json(file)["command"][1], "first");
}

TEST(WithLink, TheProgramsFailureIsNotLostWhereTheResultIs) {
  const TemporaryDirectory files;
  for (const int code : {0, 7}) {
    const std::string folder = files / std::to_string(code);
    std::filesystem::create_directory(folder);
    const CommandResult result = run_command("with-link auto --json " + folder + "/proof.json -- sh -c 'rm -r " +
                                             folder + "; exit " + std::to_string(code) + "'");
    EXPECT_EQ(result.code, code == 0 ? 1 : code) << result.err;
    EXPECT_TRUE(contains(result.err, "proof.json: cannot be written")) << result.err;
  }
}

TEST(WithLink, WhatIsNoFileIsWrittenTo) {
  const CommandResult result = run_command("with-link auto --json /dev/stdout -- true");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out, nullptr, false)["exit_code"], 0) << result.out;
  const TemporaryDirectory files;
  std::filesystem::create_symlink("there.json", files / "link.json");
  EXPECT_EQ(run_command("with-link auto --json " + (files / "link.json") + " -- true").code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(files / "link.json"));
  EXPECT_EQ(read_json(files / "there.json")["exit_code"], 0);
}

TEST(WithLink, ForeignersAndBrokenCountersProveNothing) {
  auto gpus = std::vector{fake_h200(0), fake_h200(1)};
  for (auto& gpu : gpus) gpu["counters"]["197"] = gpu["counters"]["198"] = {{"rate", 10e9}, {"start", 5'000'000'000}};
  for (auto& gpu : gpus) gpu["counters"]["138"] = {{"values", {0, 0, 1}}};
  gpus[1]["processes"] = {1};
  {
    const FakeNvml fake(fake_machine(gpus));
    const CommandResult result = with_link("pcie", "sleep 0.1");
    EXPECT_EQ(result.code, 0);
    EXPECT_TRUE(contains(result.err, "unproven: GPU 1: process 1 is on the GPU too")) << result.err;
    // A program that sees only the other GPU is not concerned.
    EXPECT_TRUE(contains(with_link("pcie", "sleep 0.1", "CUDA_VISIBLE_DEVICES=0").err, ": proven:"));
  }
  gpus[1]["processes"] = json::array();
  gpus[0]["counters"]["138"] = {{"error", 4}};
  {
    const FakeNvml fake(fake_machine(gpus));
    const CommandResult result = with_link("pcie", "sleep 0.1");
    EXPECT_TRUE(contains(result.err, "unproven: GPU 0: NVLink counters: not permitted")) << result.err;
  }
  gpus[0]["counters"]["138"] = {{"values", {0, 1000, 500}}};
  {
    const FakeNvml fake(fake_machine(gpus));
    EXPECT_TRUE(contains(with_link("pcie", "sleep 0.1").err, "went backwards"));
  }
}

TEST(WithLink, WithoutADriverNothingIsProven) {
  const CommandResult result = with_link("pcie", "exit 5", "LOCKSTEP_NVML=libnot-there.so");
  EXPECT_EQ(result.code, 5);
  EXPECT_TRUE(contains(result.err, "unproven: no NVIDIA driver here")) << result.err;
  EXPECT_EQ(with_link("pcie --require-proof", "true", "LOCKSTEP_NVML=libnot-there.so").code, 3);
}

TEST(WithLink, WrongUsageIsSaidInOneLine) {
  CommandResult result = run_gpu_command("with-link pci -- true");
  EXPECT_EQ(result.code, 2);
  expect_one_line(result.err, {"pci", "did you mean pcie?"});
  result = run_gpu_command("with-link pcie");
  EXPECT_EQ(result.code, 2);
  expect_one_line(result.err, {"COMMAND"});
  result = run_gpu_command("with-link pcie -- /not/there");
  EXPECT_EQ(result.code, 2);
  expect_one_line(result.err, {"/not/there", "cannot be started"});
}

TEST(WithLink, ContradictionsStartNothing) {
  const TemporaryDirectory files;
  std::ofstream(files / "nccl.conf") << "NCCL_P2P_LEVEL=PXB\n";
  const CommandResult result =
      with_link("pcie", "touch " + (files / "started"), "NCCL_CONF_FILE=" + (files / "nccl.conf"));
  EXPECT_EQ(result.code, 3);
  expect_one_line(result.err, {"link mode pcie", "NCCL_P2P_LEVEL=PXB", files / "nccl.conf"});
  EXPECT_FALSE(std::filesystem::exists(files / "started"));
}

TEST(WithLink, SignalsReachTheProgram) {
  EXPECT_EQ(with_link("auto", "kill -KILL $$").code, 128 + SIGKILL);
  // What is sent to the command ends the program, whose code it then has.
  for (const std::string signal : {"INT", "QUIT", "TERM", "HUP"}) {
    const CommandResult result = run_gpu_command("with-link auto -- bash -c 'trap \"exit 9\" " + signal + "; kill -" +
                                                 signal + " $PPID; for i in {1..100}; do sleep 0.05; done'");
    EXPECT_EQ(result.code, 9) << signal << ": " << result.err;
  }
}

TEST(WithLink, TheExitCodeIsNotLostWhereChildrenAreIgnored) {
  const CommandResult result =
      run_command("with-link auto -- sh -c 'exit 7'", "", "sh -c 'trap \"\" CHLD; exec \"$@\"' sh");
  EXPECT_EQ(result.code, 7) << result.err;
}

TEST(Link, RanksAreToldTheMode) {
  const TemporaryDirectory runs;
  for (const char* mode : {"auto", "nvlink", "pcie", "net"}) {
    const std::string run = runs / mode;
    const CommandResult result = run_command(std::string(kTraining) + "--ranks 2 --link " + mode + " --out " + run);
    ASSERT_EQ(result.code, 0) << result.err;
    const bool automatic = mode == std::string("auto");
    EXPECT_NE(contains(result.out, std::string("link ") + mode), automatic) << result.out;
    EXPECT_NE(contains(result.out, "NVLS off: unproven: the ranks are on CPUs"), automatic) << result.out;
    const json config = read_json(run + "/config.json");
    EXPECT_EQ(config["link"]["mode"], mode);
    EXPECT_EQ(config["link"]["probe"]["verdict"], "unproven");
    EXPECT_EQ(config["environment"]["NCCL_NVLS_ENABLE"], "0");
    EXPECT_NE(config["environment"].contains("NCCL_P2P_DISABLE"), automatic);
    EXPECT_NE(std::filesystem::exists(run + "/link.json"), automatic);
    if (automatic) continue;
    EXPECT_EQ(read_json(run + "/link.json")["training"]["verdict"], "unproven");
  }
}

TEST(Link, WhatTheUserHasSetIsKeptAndNamed) {
  const TemporaryDirectory files;
  std::ofstream(files / "nccl.conf") << "NCCL_NVLS_ENABLE=1\n";
  const CommandResult result = run_command(std::string(kTraining) + "--ranks 2 --link nvlink --out " + (files / "run"),
                                           "NCCL_CONF_FILE=" + (files / "nccl.conf"));
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(contains(result.out, "NCCL_NVLS_ENABLE=1 from " + (files / "nccl.conf") + " is kept")) << result.out;
  EXPECT_TRUE(contains(result.out, "NVLS allowed")) << result.out;
  EXPECT_EQ(read_json(files / "run/config.json")["environment"]["NCCL_NVLS_ENABLE"], "1");
}

TEST(Link, ContradictionsAndMissingProofsEndWith3) {
  const TemporaryDirectory runs;
  const std::string training = std::string(kTraining) + "--out " + (runs / "run") + " ";
  CommandResult result = run_command(training + "--ranks 2 --link nvlink", "NCCL_P2P_DISABLE=1");
  EXPECT_EQ(result.code, 3);
  expect_one_line(result.err, {"link mode nvlink", "NCCL_P2P_DISABLE=1 from the environment"});
  result = run_command(training + "--ranks 2 --link pcie --require-proof");
  EXPECT_EQ(result.code, 3);
  EXPECT_TRUE(contains(result.err, "--require-proof is given: the ranks are on CPUs")) << result.err;
  EXPECT_FALSE(std::filesystem::exists(runs / "run/metrics.jsonl"));  // before step 1
  result = run_command(training + "--link pcei");
  EXPECT_EQ(result.code, 2);
  expect_one_line(result.err, {"did you mean pcie?"});
}

TEST(Link, EvaluationTakesItToo) {
  const TemporaryDirectory runs;
  ASSERT_EQ(run_command(std::string(kTraining) + "--ranks 1 --link pcie --out " + (runs / "run")).code, 0);
  const std::string evaluation = "eval mlp --synthetic --device cpu --checkpoint " + (runs / "run");
  EXPECT_EQ(run_command(evaluation + " --ranks 2 --link pcie").code, 0);
  EXPECT_EQ(run_command(evaluation + " --ranks 2 --link pcie", "NCCL_P2P_DISABLE=0").code, 3);
  EXPECT_EQ(run_command(evaluation + " --ranks 2 --require-proof").code, 3);
}

TEST(Topology, SaysSoWithoutADriver) {
  const CommandResult result = run_gpu_command("topology --check", "LOCKSTEP_NVML=libnot-there.so");
  EXPECT_TRUE(contains(result.out, "no GPU: no NVIDIA driver here")) << result.out;
  EXPECT_TRUE(contains(result.out, "/dev/shm")) << result.out;
  EXPECT_EQ(result.code, std::filesystem::exists("/proc/driver/nvidia/version") ? 3 : 0);
}

TEST(Topology, PairsAndSettingsAreListed) {
  const TemporaryDirectory files;
  const FakeNvml fake(fake_machine({fake_h200(0), fake_h200(1)}));
  const CommandResult result =
      run_gpu_command("topology --check --json " + (files / "topology.json"), "NCCL_P2P_LEVEL=LOC");
  EXPECT_EQ(result.code, 0) << result.out;
  for (const char* part :
       {"NVIDIA H200", "gen 4, 18 of 18", "5 x16", "580.95.05",
        "0-1: NVLink through NVSwitch, 18 of 18 links: 450 GB/s in each direction at most, about 396",
        "NCCL_P2P_LEVEL=LOC  (the environment)", "warning: NCCL_P2P_LEVEL=LOC"}) {
    EXPECT_TRUE(contains(result.out, part)) << part << " in " << result.out;
  }
  const json topology = read_json(files / "topology.json");
  EXPECT_EQ(topology["gpus"].size(), 2u);
  EXPECT_EQ(topology["pairs"][0]["path"], "NVLink through NVSwitch");
  EXPECT_EQ(topology["pairs"][0]["peak_gb_s"], 450);
  EXPECT_EQ(topology["findings"][0]["kind"], "warning");
}

TEST(Topology, AFaultEndsWith3OnlyWhereAskedFor) {
  auto machine = fake_machine({fake_h200(0), fake_h200(1)});
  machine["gpus"][0]["links"][7]["active"] = false;
  const FakeNvml fake(machine);
  const CommandResult result = run_gpu_command("topology --check");
  EXPECT_EQ(result.code, 3);
  EXPECT_TRUE(contains(result.out, "fault: GPU 0 (NVIDIA H200, 0000:19:00.0): 17 of 18 NVLinks are active"))
      << result.out;
  EXPECT_EQ(run_gpu_command("topology").code, 0);
}

}  // namespace
}  // namespace lockstep
