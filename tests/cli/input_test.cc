// Wrong input gets one clear line and exit code 2.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "framework/data/idx.h"
#include "kernels/dispatch.h"
#include "tests/cli/command.h"

namespace lockstep {
namespace {

void expect_refused(const CommandResult& result, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.code, 2) << result.err << result.out;
  expect_one_line(result.err, parts);
}

TEST(WrongInput, UnknownNamesComeWithTheNearest) {
  expect_refused(run_command("train lenot"), {"lenot", "lenet, mlp", "did you mean lenet?"});
  expect_refused(run_command("trian lenet"), {"trian", "did you mean train?"});
  expect_refused(run_command("train lenet --bucket-cap 3"), {"--bucket-cap", "did you mean --bucket-cap-mib?"});
  expect_refused(run_command("train lenet --stepz=3"), {"--stepz=3", "did you mean --steps?"});
  expect_refused(run_command("train lenet --optimizer adam"), {"adam", "did you mean adamw?"});
  expect_refused(run_command("train lenet --overlap yes"), {"yes", "on, off, naive"});
}

TEST(WrongInput, ValuesOutOfRange) {
  expect_refused(run_command("train lenet --steps 0"), {"--steps", "at least 1", "got 0"});
  expect_refused(run_command("train lenet --steps two"), {"--steps", "two"});
  expect_refused(run_command("train lenet --steps 3 --epochs 1"), {"--steps", "--epochs", "both"});
  expect_refused(run_command("train lenet --dropout 1"), {"--dropout", "[0, 1)"});
  expect_refused(run_command("train lenet --ranks 0"), {"--ranks", "at least 1", "got 0"});
  expect_refused(run_command("compare mlp --emulate nvlink4,pcie5 --grad-dtype bf16"), {"--grad-dtype", "CPU ranks"});
  expect_refused(run_command("train lenet --momentum 1.5"), {"momentum", "[0, 1)", "1.5"});
  expect_refused(run_command("train"), {"MODEL"});
}

TEST(WrongInput, ValuesThatAreNone) {
  expect_refused(run_command("train lenet --momentum ''"), {"--momentum", "got nothing"});
  expect_refused(run_command("train lenet --resume ''"), {"--resume", "got nothing"});
  expect_refused(run_command("train lenet --seed -1"), {"--seed", "-1"});
  expect_refused(run_command("train lenet --seed 18446744073709551616"), {"--seed", "18446744073709551616"});
  expect_refused(run_command("train lenet --epochs 100000000000000000"), {"--epochs", "100000000000000000"});
  expect_refused(run_command("train lenet --lr 0.1x"), {"--lr", "0.1x"});
  expect_refused(run_command("train lenet --ranks 100000"), {"--ranks", "100000"});
}

TEST(WrongInput, NumbersThatWouldOverflow) {
  for (const char* side : {"9223372036854775807", "6442450945", "8193"}) {
    expect_refused(run_command(std::string("train mlp --synthetic --steps 1 --image-size ") + side),
                   {"--image-size", "at most 8192", side});
  }
  expect_refused(run_command("train vgg11 --synthetic --steps 1 --image-size 3037000499"), {"--image-size"});
  expect_refused(run_command("all-reduce --device cpu -b 8G -e 8G -f 2147483647"), {"-f", "to 1048576", "2147483647"});
  for (const char* command : {"measure mlp --steps 2147483647", "predict mlp --warmup 2147483647",
                              "compare mlp --emulate nvlink4,pcie5 --steps 1000001"}) {
    expect_refused(run_command(command), {"--steps, --warmup", "from 1 to 1000000"});
  }
  for (const char* command : {"measure mlp --bucket-cap-mib 1e300", "all-reduce --model mlp --bucket-cap-mib 0"}) {
    expect_refused(run_command(command), {"--bucket-cap-mib", "at most 1e+06"});
  }
  const std::string most = " --batch-per-rank 9223372036854775807";
  expect_refused(run_command("measure mlp" + most), {"--batch-per-rank", "from 1 to 16777216"});
  expect_refused(run_command("compare mlp --emulate nvlink4,pcie5 --sweep batch" + most),
                 {"--batch-per-rank", "got 9223372036854775807"});
}

// A command that starts ranks says what is wrong with them before the first.
TEST(WrongInput, MoreRanksOrThreadsThanTheHostHolds) {
  for (const char* command : {"compare mlp --emulate nvlink4,pcie5 --ranks 2147483647",
                              "compare mlp --emulate nvlink4,pcie5 --ranks 2,100000", "predict mlp --ranks 2,100000"}) {
    const CommandResult result = run_command(command);
    expect_refused(result, {"--ranks", "expected at most"});
    EXPECT_EQ(result.out, "");
  }
  expect_refused(run_command("predict mlp", "OMP_NUM_THREADS=99999"), {"OMP_NUM_THREADS", "99999"});
  expect_refused(run_command("predict mlp", "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1"),
                 {"predict: starts its own ranks", "torchrun"});
}

TEST(WrongInput, SlowMotionOutOfRangeOrOfNothing) {
  const char* const commands[] = {"measure mlp --emulate pcie5", "all-reduce --emulate pcie5",
                                  "compare mlp --emulate nvlink4,pcie5", "predict mlp"};
  for (const std::string command : commands) {
    for (const char* factor : {"0", "-5", "nan", "inf", "1e300", "1000001"}) {
      expect_refused(run_command(command + " --slow-motion " + factor), {"--slow-motion", "above 0"});
    }
  }
  for (const std::string command : {"measure mlp", "all-reduce", "compare mlp"}) {
    expect_refused(run_command(command + " --slow-motion 5"), {"--slow-motion", "--emulate"});
  }
}

TEST(WrongInput, OutputsThatCannotBeWrittenOrAreReadOrAreTheSame) {
  const TemporaryDirectory directory;
  for (const std::string command : {"measure mlp", "all-reduce", "predict mlp", "topology", "claims", "with-link auto",
                                    "compare mlp --emulate nvlink4,pcie5"}) {
    const std::string program = command.starts_with("with-link") ? " -- true" : "";
    expect_refused(run_command(command + " --json " + (directory / "no/it.json") + program), {"no such directory"});
    expect_refused(run_command(command + " --json " + (directory / ".") + program), {"--json", "got a directory"});
  }
  expect_refused(run_command("measure mlp --plan " + (directory / "no/plan")), {"--plan", "no such directory"});
  expect_refused(run_command("measure mlp --plan " + (directory / ".")), {"--plan", "got a directory"});

  const std::string comparison = "tests/cli/comparisons/emulated.json";
  for (const char* name : {"page.md", "page.html"}) {
    std::filesystem::copy(comparison, directory / name);
    const auto size = std::filesystem::file_size(directory / name);
    expect_refused(run_command("report " + (directory / name) + " --out " + (directory / "page.html")),
                   {"--out", name});
    EXPECT_EQ(std::filesystem::file_size(directory / name), size);
    std::filesystem::remove(directory / name);
  }
  std::filesystem::copy(comparison, directory / "it.json");
  std::filesystem::create_symlink("it.json", directory / "link.json");
  expect_refused(run_command("claims --from " + (directory / "it.json") + " --json " + (directory / "link.json")),
                 {"--json", "which is read"});
  for (const char* name : {"same.html", "same.md"}) {
    expect_refused(run_command("compare mlp --emulate nvlink4,pcie5 --report " + (directory / "same.html") +
                               " --json " + (directory / name)),
                   {"--json", name, "which --report writes"});
  }
}

TEST(WrongInput, JsonThatIsNoFileOrTooDeep) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "deep.json") << R"({"options": )" << std::string(200'000, '[') << std::string(200'000, ']')
                                         << "}";
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  for (const std::string command : {"report ", "claims --from ", "predict mlp --sweeps "}) {
    expect_refused(run_command(command + (directory / "deep.json")), {"deep.json", "at most 100 levels"});
    expect_refused(run_command(command + (directory / "pipe")), {"pipe", "expected a file"});
    expect_refused(run_command(command + (directory / ".")), {"expected a file"});
  }
}

TEST(WrongInput, OutputsThatCouldNotBeWrittenInTheEnd) {
  const TemporaryDirectory directory;
  const std::string longest(255, 'b');
  EXPECT_EQ(run_command("topology --json " + (directory / longest)).code, 0);
  EXPECT_TRUE(std::filesystem::exists(directory / longest));
  expect_refused(run_command("topology --json " + (directory / (longest + "b"))), {"--json", "File name too long"});
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  const CommandResult unread = run_command("topology --json " + (directory / "pipe"), "", "timeout 20 env");
  EXPECT_EQ(unread.code, 1);
  expect_one_line(unread.err, {"--json", "a reader at the other end of the pipe"});
}

TEST(WrongInput, PipesWhereFilesOfARunShouldBe) {
  const TemporaryDirectory directory;
  const std::string run = directory / "run";
  const std::string limited = "timeout 20 env";  // it must not wait for a writer
  ASSERT_EQ(run_command("train mlp --synthetic --threads 1 --batch-per-rank 2 --steps 1 --out " + run).code, 0);
  const std::string checkpoint = run + "/checkpoints/step-00000001/";
  for (const std::string& file : {run + "/metrics.jsonl", checkpoint + "tensors.bin", checkpoint + "manifest.json"}) {
    std::filesystem::rename(file, directory / "kept");
    ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
    const CommandResult result = run_command("train mlp --steps 2 --resume " + run, "", limited);
    EXPECT_EQ(result.code, 2) << file << ": " << result.err;
    std::filesystem::remove(file);
    std::filesystem::rename(directory / "kept", file);
  }
}

TEST(WrongInput, ADirectoryThatCannotBeWrittenTo) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "file") << "something";
  const std::string options = "train mlp --synthetic --threads 1 --steps 1 --out ";
  expect_refused(run_command(options + (directory / "file")), {"file", "empty directory"});
  expect_refused(run_command(options + (directory / "file/below")), {"file/below", "Not a directory"});
  expect_refused(run_command(options + (directory / std::string(300, 'x'))), {"File name too long"});
  expect_refused(run_command(options + (directory / ".")), {"new or an empty directory"});
}

TEST(WrongInput, ABatchThatDoesNotDivideNamesTheNearestThatDo) {
  expect_refused(run_command("train lenet --synthetic --ranks 3 --global-batch 64"), {"64", "63", "66"});
}

TEST(WrongInput, ADeviceThatIsNotThere) {
  expect_refused(run_command("train lenet --device cuda"), {"--device cuda", "--device cpu"});
  if (kernels::kHasCuda && !std::filesystem::exists("/proc/driver/nvidia/version")) {
    expect_refused(run_command("train lenet --device cuda"), {"got none: no NVIDIA driver is installed"});
  }
  expect_refused(run_command("train lenet --device gpu"), {"gpu", "auto, cpu, cuda"});
  expect_refused(run_command("train lenet --precision tf32"), {"--precision tf32", "GPU"});
  expect_refused(run_command("train lenet --precision bf16"), {"--precision bf16", "GPU"});
  expect_refused(run_command("eval lenet --checkpoint none --precision bf16"), {"--precision bf16", "GPU"});
  expect_refused(run_command("train lenet --precision f16"), {"f16", "f32, tf32, bf16"});
  expect_refused(run_command("train lenet --grad-dtype bf16"), {"--grad-dtype bf16", "GPU"});
  expect_refused(run_command("train lenet --grad-dtype f16"), {"f16", "f32, bf16"});
}

TEST(WrongInput, DataThatIsMissingOrBroken) {
  const TemporaryDirectory directory;
  expect_refused(run_command("train lenet --data " + (directory / "none")), {"none", "dataset-fashion-mnist"});
  expect_refused(run_command("train lenet --ranks 2 --data " + (directory / "none")),
                 {"none", "dataset-fashion-mnist"});

  const std::string data = directory / "data";
  std::filesystem::copy(kFashionMnistPath, data);
  const std::string labels = data + "/train-labels-idx1-ubyte.gz";
  std::filesystem::resize_file(labels, std::filesystem::file_size(labels) / 2);
  expect_refused(run_command("train lenet --data " + data), {"train-labels-idx1-ubyte", "expected", "found", "offset"});
}

TEST(WrongInput, DataThatTheModelCannotTake) {
  expect_refused(run_command("train vgg16"), {"vgg16", "--synthetic", "224 x 224 x 3"});
  expect_refused(run_command(std::string("train vgg11 --ranks 2 --data ") + kFashionMnistPath),
                 {"vgg11", "32 x 32", "(28, 28, 1)"});
  expect_refused(run_command("train vgg13 --synthetic --image-size 31"), {"vgg13", "32 x 32", "(31, 31, 3)"});
  expect_refused(run_command("train lenet --synthetic --image-size 32"), {"lenet", "28 x 28", "(32, 32, 1)"});
  expect_refused(run_command("train mlp --synthetic --image-size 0"), {"--image-size", "at least 1", "got 0"});
  expect_refused(run_command("train mlp --image-size 28"), {"--image-size", "--synthetic"});
  expect_refused(run_command(std::string("train mlp --synthetic --data ") + kFashionMnistPath),
                 {"--synthetic", "--data", "both"});
}

TEST(WrongInput, AChecksumThatIsMissing) {
  const TemporaryDirectory directory;
  for (const char* file : {"t10k-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz"}) {
    const std::string data = directory / (std::string("without-") + file);
    std::filesystem::copy(kFashionMnistPath, data);
    const std::string damaged = data + "/" + file;
    std::filesystem::resize_file(damaged, std::filesystem::file_size(damaged) - 8);
    expect_refused(run_command("train lenet --data " + data), {file, "truncated gzip"});
  }
}

TEST(WrongInput, CheckpointsOfAnotherModelOrData) {
  const TemporaryDirectory runs;
  ASSERT_EQ(run_command("train mlp --synthetic --threads 1 --steps 3 --out " + (runs / "run")).code, 0);
  expect_refused(run_command("eval lenet --ranks 2 --checkpoint " + (runs / "run")), {"of lenet", "of mlp"});
  expect_refused(run_command("train lenet --resume " + (runs / "run")), {"mlp", "lenet"});
  expect_refused(
      run_command(std::string("train mlp --ranks 2 --data ") + kFashionMnistPath + " --resume " + (runs / "run")),
      {"synthetic", "fashion-mnist"});
  expect_refused(run_command("train mlp --seed 7 --resume " + (runs / "run")), {"--seed"});
  expect_refused(run_command("train mlp --steps 2 --resume " + (runs / "run")), {"3 steps", "got 2"});
  nlohmann::json config = read_json(runs / "run/config.json");
  const auto refused_with = [&](const char* option, const nlohmann::json& value,
                                const std::vector<std::string>& parts) {
    nlohmann::json changed = config;
    changed["options"][option] = value;
    std::ofstream(runs / "run/config.json") << changed;
    expect_refused(run_command("train mlp --steps 4 --resume " + (runs / "run")), parts);
  };
  refused_with("image-size", 9223372036854775807, {"--image-size", "at most"});
  refused_with("warmup", 1.5, {"config.json", "warmup", "a whole number"});
  refused_with("optimizer", 3, {"config.json", "optimizer", "a text"});
  nlohmann::json shorter = config;
  shorter["options"].erase("lr");
  std::ofstream(runs / "run/config.json") << shorter;
  expect_refused(run_command("train mlp --steps 4 --resume " + (runs / "run")), {"config.json", "an entry lr"});
  config["options"]["seed"] = 7;
  std::ofstream(runs / "run/config.json") << R"({"lr": "x"})";
  expect_refused(run_command("train mlp --steps 4 --resume " + (runs / "run")), {"got: key 'model' not found"});
  std::ofstream(runs / "run/config.json") << config;
  expect_refused(run_command("train mlp --steps 4 --resume " + (runs / "run")), {"seed", "with, 0, got 7"});
}

// Once, and not by each rank.
TEST(WrongInput, ARunThatAnotherWritesTo) {
  const TemporaryDirectory runs;
  const std::string run = runs / "run";
  ASSERT_EQ(run_command("train mlp --synthetic --threads 1 --batch-per-rank 2 --steps 1 --out " + run).code, 0);
  const int other = ::open(run.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  for (const char* ranks : {"1", "2"}) {
    expect_refused(run_command(std::string("train mlp --steps 2 --ranks ") + ranks + " --resume " + run),
                   {"another run writes to it"});
  }
  ::close(other);
}

TEST(WrongInput, CheckpointsThatAreMissing) {
  const TemporaryDirectory directory;
  expect_refused(run_command("eval lenet --checkpoint " + (directory / "none")), {"none"});
  expect_refused(run_command("train lenet --resume " + (directory / "none")), {"none"});
  expect_refused(run_command("eval lenet"), {"--checkpoint"});
}

TEST(WrongInput, ContradictoryLaunchVariables) {
  expect_refused(run_command("train lenet --synthetic", "RANK=3 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2"),
                 {"RANK", "WORLD_SIZE", "3", "2"});
  expect_refused(
      run_command("train lenet --synthetic --ranks 4", "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2"),
      {"--ranks", "4", "WORLD_SIZE", "2"});
}

TEST(WrongInput, APortThatIsTaken) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  socklen_t length = sizeof address;
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  const std::string port = std::to_string(ntohs(address.sin_port));
  expect_refused(run_command("train lenet --synthetic --ranks 2", "LOCKSTEP_PORT=" + port), {port, "LOCKSTEP_PORT"});
  close(listener);
}

TEST(Output, ThatIsLostIsAFailure) {
  const std::string full = "sh -c '\"$@\" >/dev/full' sh";
  for (const char* arguments :
       {"--help", "--version", "train --help", "all-reduce --ranks 2 -b 8 -e 8 -n 1 -w 0",
        "predict mlp --batch-per-rank 1 --steps 1 --warmup 1",
        "compare mlp --emulate nvlink4,pcie5 --batch-per-rank 1 --repeats 2 --steps 1 --warmup 1 --slow-motion 20"}) {
    const CommandResult result = run_command(arguments, "", full);
    EXPECT_EQ(result.code, 1) << arguments;
    EXPECT_NE(result.err.find("written"), std::string::npos) << arguments << ": " << result.err;
  }
}

TEST(Output, TemporaryFilesNeedAPlace) {
  const CommandResult result = run_command("predict mlp", "TMPDIR=/nowhere");
  EXPECT_EQ(result.code, 1);
  expect_one_line(result.err, {"TMPDIR"});
  EXPECT_EQ(run_command("with-link auto -- true", "TMPDIR=/nowhere").code, 0);
}

TEST(Help, IsThereForEveryCommand) {
  for (const std::string command : {"", "train", "eval"}) {
    const CommandResult help = run_command(command + " --help");
    EXPECT_EQ(help.code, 0);
    EXPECT_NE(help.out.find("--help"), std::string::npos) << help.out;
  }
  const CommandResult version = run_command("--version");
  EXPECT_EQ(version.code, 0);
  for (const char* part : {"Gloo", "CUDA", "NCCL", "cuDNN"})
    EXPECT_NE(version.out.find(part), std::string::npos) << part;
}

}  // namespace
}  // namespace lockstep
