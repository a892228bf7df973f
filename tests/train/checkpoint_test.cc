#include "framework/train/checkpoint.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <sstream>
#include <utility>

#include "framework/core/error.h"
#include "framework/distributed/local_group.h"
#include "framework/nn/layers.h"
#include "framework/train/restore.h"
#include "kernels/bfloat16.h"
#include "tests/support/bf16_value.h"
#include "tests/support/seed.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/worlds.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void overwrite(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

// The elements as bytes.
std::string bytes_of(const Tensor& tensor) {
  std::string bytes(static_cast<std::size_t>(tensor.view().bytes()), '\0');
  tensor.copy_to_host({bytes.data(), tensor.dtype(), tensor.shape()});
  return bytes;
}

template <class ErrorType>
std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const ErrorType& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
#define EXPECT_CONTAINS(text, part) EXPECT_TRUE(contains(text, part)) << (text) << "\nlacks: " << (part)

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : random_(testing::test_seed()), log_(spdlog::default_logger()) {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(warnings_)));
  }
  ~CheckpointTest() override { spdlog::set_default_logger(log_); }

  std::int64_t below(std::int64_t end) { return std::uniform_int_distribution<std::int64_t>(0, end - 1)(random_); }

  Tensor random_tensor(const Shape& shape, DType dtype) {
    Tensor tensor = Tensor::empty(shape, dtype);
    std::string bytes(static_cast<std::size_t>(tensor.view().bytes()), '\0');
    for (char& value : bytes) value = static_cast<char>(random_());
    tensor.copy_from_host({bytes.data(), dtype, shape});
    return tensor;
  }

  // A few tensors of every kind, none larger than a page.
  std::vector<NamedTensor> small_tensors() {
    return {{"conv.weight", random_tensor({6, 5, 5, 1}, DType::f32)},
            {"conv.bias", random_tensor({6}, DType::f32)},
            {"half", random_tensor({3, 7}, DType::bf16)},
            {"none", random_tensor({0, 3}, DType::f32)},
            {"scalar", random_tensor({}, DType::f64)},
            {"count", random_tensor({17}, DType::i32)},
            {"bytes", random_tensor({129}, DType::u8)}};
  }

  static std::vector<NamedTensor> zeros_like(const std::vector<NamedTensor>& tensors) {
    std::vector<NamedTensor> zeros;
    for (const auto& [name, value] : tensors) zeros.push_back({name, Tensor::zeros(value.shape(), value.dtype())});
    return zeros;
  }

  static void expect_equal(const std::vector<NamedTensor>& expected, const std::vector<NamedTensor>& got) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(bytes_of(expected[i].value) == bytes_of(got[i].value)) << expected[i].name;
    }
  }

  fs::path checkpoints() const { return run_ / "checkpoints"; }

  std::mt19937_64 random_;
  std::shared_ptr<spdlog::logger> log_;
  std::ostringstream warnings_;
  const TemporaryDirectory directory_;
  const fs::path run_ = directory_.path();
};

TEST_F(CheckpointTest, GivesBackWhatWasSavedAtTheSameAddresses) {
  std::vector<NamedTensor> saved = small_tensors();
  saved.push_back({"larger than the parts it is read in", random_tensor({3, (4 << 20) + 1}, DType::bf16)});
  const CheckpointInfo info{.step = 120,
                            .seed = std::numeric_limits<std::uint64_t>::max(),
                            .model = "lenet",
                            .data = "fashion \"mnist\"\n",
                            .data_size = 60000,
                            .global_batch = 256,
                            .world_size = 4,
                            .best_metric = 0.1 + 0.2};
  const fs::path path = save_checkpoint(run_, info, saved);
  EXPECT_EQ(path, checkpoints() / "step-00000120");
  EXPECT_EQ(names_in(path), (std::set<std::string>{"manifest.json", "tensors.bin"}));
  EXPECT_EQ(find_latest(run_), path);
  EXPECT_EQ(find_latest(path), path);
  EXPECT_EQ(read_checkpoint_info(path), info);

  // In another order than the file's.
  std::vector<NamedTensor> loaded = zeros_like(saved);
  std::vector<NamedTensor> shuffled = loaded;
  std::shuffle(shuffled.begin(), shuffled.end(), random_);
  std::vector<void*> addresses;
  for (const NamedTensor& tensor : loaded) addresses.push_back(tensor.value.view().data);
  EXPECT_EQ(load_checkpoint(path, shuffled), info);
  expect_equal(saved, loaded);
  for (std::size_t i = 0; i < loaded.size(); ++i) EXPECT_EQ(loaded[i].value.view().data, addresses[i]);
  EXPECT_EQ(warnings_.str(), "");
}

TEST_F(CheckpointTest, NumbersThatJsonCannotHoldAndNamesThatAreNoUtf8StopNoSave) {
  const fs::path path = save_checkpoint(
      run_, {.step = 1, .data = "caf\xe9", .best_metric = std::numeric_limits<double>::quiet_NaN()}, small_tensors());
  EXPECT_EQ(find_latest(run_), path);
  EXPECT_FALSE(read_checkpoint_info(path).best_metric.has_value());
}

TEST_F(CheckpointTest, KilledAtAnyMomentLeavesACheckpointOfOneStep) {
  constexpr int kKills = 50;
  const auto tensors_of_step = [](std::int64_t step) {
    std::vector<NamedTensor> tensors;
    for (std::int32_t i = 0; i < 4; ++i) {
      const std::vector<std::int32_t> values(20000, static_cast<std::int32_t>(step) * 4 + i);
      tensors.push_back({"t" + std::to_string(i), Tensor::from_host(std::span(values), {100, 200})});
    }
    return tensors;
  };
  save_checkpoint(run_, {.step = 1}, tensors_of_step(1));
  std::int64_t step = 1;
  int interrupted = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        for (std::int64_t next = step + 1;; ++next) save_checkpoint(run_, {.step = next}, tensors_of_step(next));
      } catch (const std::exception& error) {
        std::cerr << error.what() << std::endl;
        ::_exit(1);
      }
    }
    ASSERT_GT(child, 0);
    ::usleep(static_cast<useconds_t>(below(60000)));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "saving failed";

    for (const std::string& name : names_in(checkpoints())) {
      if (name.ends_with(".tmp")) {
        ++interrupted;
      } else {
        EXPECT_NO_THROW(find_latest(checkpoints() / name)) << "incomplete under the name of a checkpoint";
      }
    }
    const fs::path path = find_latest(run_);
    std::vector<NamedTensor> loaded = zeros_like(tensors_of_step(0));
    const std::int64_t found = load_checkpoint(path, loaded).step;
    ASSERT_GE(found, step);
    step = found;
    expect_equal(tensors_of_step(step), loaded);
    ASSERT_EQ(warnings_.str(), "");
  }
  std::cout << kKills << " kills, " << interrupted << " while a checkpoint was written or removed, " << step
            << " steps\n";
  EXPECT_GT(interrupted, 0);
  EXPECT_GT(step, 1);

  save_checkpoint(run_, {.step = step + 1}, tensors_of_step(step + 1));
  for (const std::string& name : names_in(checkpoints())) EXPECT_FALSE(name.ends_with(".tmp")) << name;
}

TEST_F(CheckpointTest, EveryFlippedBitIsNoticed) {
  const std::vector<NamedTensor> tensors = small_tensors();
  const fs::path good = save_checkpoint(run_, {.step = 1, .seed = random_()}, tensors);
  const fs::path path = save_checkpoint(run_, {.step = 2, .seed = random_()}, tensors);
  std::vector<NamedTensor> loaded = zeros_like(tensors);
  for (const char* file : {"manifest.json", "tensors.bin"}) {
    const std::string before = contents(path / file);
    for (int trial = 0; trial < 200; ++trial) {
      std::string damaged = before;
      const auto byte = static_cast<std::size_t>(below(static_cast<std::int64_t>(before.size())));
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << below(8)));
      overwrite(path / file, damaged);
      SCOPED_TRACE(std::string(file) + " at offset " + std::to_string(byte));
      const std::string error = thrown_by<std::invalid_argument>([&] { load_checkpoint(path, loaded); });
      EXPECT_CONTAINS(error, path / file);
      EXPECT_EQ(find_latest(run_), good);
    }
    overwrite(path / file, before);
  }
  EXPECT_EQ(find_latest(run_), path);
}

TEST_F(CheckpointTest, DamageIsNamedWithTensorAndOffset) {
  const std::vector<NamedTensor> tensors = small_tensors();
  const fs::path path = save_checkpoint(run_, {.step = 1}, tensors);
  const std::string before = contents(path / "tensors.bin");
  std::size_t offset = 0;
  for (const auto& [name, value] : tensors) {
    const auto bytes = static_cast<std::size_t>(value.view().bytes());
    const std::string place = "tensor '" + name + "' at offset " + std::to_string(offset);
    if (bytes > 0) {
      const std::size_t byte = offset + static_cast<std::size_t>(below(value.view().bytes()));
      std::string damaged = before;
      damaged[byte] = static_cast<char>(~damaged[byte]);
      overwrite(path / "tensors.bin", damaged);
      EXPECT_CONTAINS(thrown_by<std::invalid_argument>([&] { load_checkpoint(path, zeros_like(tensors)); }), place);
      overwrite(path / "tensors.bin", before.substr(0, byte));
      EXPECT_CONTAINS(thrown_by<std::invalid_argument>([&] { load_checkpoint(path, zeros_like(tensors)); }), place);
    }
    offset += bytes;
  }
  EXPECT_EQ(offset, before.size());
}

TEST_F(CheckpointTest, FilesThatAreTooShortTooLongOrGoneAreNoticed) {
  const std::vector<NamedTensor> tensors = small_tensors();
  const fs::path good = save_checkpoint(run_, {.step = 1}, tensors);
  const fs::path path = save_checkpoint(run_, {.step = 2}, tensors);
  const auto expect_noticed = [&] {
    thrown_by<std::invalid_argument>([&] { load_checkpoint(path, zeros_like(tensors)); });
    thrown_by<std::invalid_argument>([&] { read_checkpoint_info(path); });
    EXPECT_EQ(find_latest(run_), good);
  };
  for (const char* file : {"manifest.json", "tensors.bin"}) {
    const std::string before = contents(path / file);
    const auto size = static_cast<std::int64_t>(before.size());
    std::vector<std::int64_t> lengths = {0, 1, size - 1};
    for (int trial = 0; trial < 50; ++trial) lengths.push_back(below(size));
    for (const std::int64_t length : lengths) {
      SCOPED_TRACE(std::string(file) + " cut at " + std::to_string(length));
      overwrite(path / file, before.substr(0, static_cast<std::size_t>(length)));
      expect_noticed();
    }
    SCOPED_TRACE(file);
    overwrite(path / file, before + '\n');
    expect_noticed();
    fs::remove(path / file);
    expect_noticed();
    overwrite(path / file, before);
  }
}

TEST_F(CheckpointTest, TensorsThatDoNotMatchAreNamedAndNothingIsCopied) {
  const std::vector<NamedTensor> saved = small_tensors();
  const fs::path path = save_checkpoint(run_, {.step = 1, .model = "lenet"}, saved);
  const auto expect_refused = [&](std::vector<NamedTensor> tensors, const std::string& message) {
    const std::string error = thrown_by<std::invalid_argument>([&] { load_checkpoint(path, tensors); });
    EXPECT_EQ(error, path.string() + ": " + message + " (a checkpoint of model 'lenet')");
    for (const NamedTensor& tensor : tensors) {
      EXPECT_EQ(bytes_of(tensor.value).find_first_not_of('\0'), std::string::npos) << tensor.name;
    }
  };
  const std::vector<NamedTensor> zeros = zeros_like(saved);

  std::vector<NamedTensor> tensors = zeros;
  tensors.insert(tensors.begin() + 3, {"fc.bias", Tensor::zeros({10}, DType::f32)});
  tensors.push_back({"fc.weight", Tensor::zeros({10, 2}, DType::f32)});
  expect_refused(tensors, "expected tensor 'fc.bias' to be f32 (10), found none");

  tensors = zeros;
  tensors[0].value = Tensor::zeros({6, 25, 1}, DType::f32);
  expect_refused(tensors, "expected tensor 'conv.weight' to be f32 (6, 25, 1), found f32 (6, 5, 5, 1)");

  tensors = zeros;
  tensors[5].value = Tensor::zeros({17}, DType::f32);
  expect_refused(tensors, "expected tensor 'count' to be f32 (17), found i32 (17)");

  tensors = zeros;
  tensors.erase(tensors.begin() + 1, tensors.begin() + 3);
  expect_refused(tensors, "expected tensor 'conv.bias' to be absent, found f32 (6)");
  load_checkpoint(path, tensors, Surplus::ignore);
  EXPECT_EQ(bytes_of(tensors.back().value), bytes_of(saved.back().value));
  // Only the surplus is forgiven.
  tensors.push_back({"fc.bias", Tensor::zeros({10}, DType::f32)});
  thrown_by<std::invalid_argument>([&] { load_checkpoint(path, tensors, Surplus::ignore); });
}

TEST_F(CheckpointTest, OnlyTheLastOnesAreKept) {
  const std::vector<NamedTensor> tensors = small_tensors();
  const std::vector<std::int64_t> steps = {0, 5, 99999999, 100000000, 100000001};
  for (const std::int64_t step : steps) save_checkpoint(run_, {.step = step}, tensors, 0);
  EXPECT_EQ(names_in(checkpoints()).size(), steps.size());
  // What a killed process left; what is not ours.
  fs::create_directories(checkpoints() / "step-00000007.tmp");
  overwrite(checkpoints() / "step-00000007.tmp" / "tensors.bin", "abc");
  overwrite(checkpoints() / "notes.tmp", "mine");
  save_checkpoint(run_, {.step = 100000002}, tensors);
  EXPECT_EQ(names_in(checkpoints()), (std::set<std::string>{"notes.tmp", "step-100000001", "step-100000002"}));
  EXPECT_EQ(find_latest(run_), checkpoints() / "step-100000002");
  save_checkpoint(run_, {.step = 100000003}, tensors, 1);
  EXPECT_EQ(names_in(checkpoints()), (std::set<std::string>{"notes.tmp", "step-100000003"}));
  EXPECT_EQ(warnings_.str(), "");
}

TEST_F(CheckpointTest, DamagedOnesArePassedOverAndThenOutOfTheWay) {
  std::vector<NamedTensor> tensors = small_tensors();
  for (const std::int64_t step : {10, 20, 30, 40}) save_checkpoint(run_, {.step = step}, tensors, 0);
  fs::resize_file(checkpoints() / "step-00000030" / "tensors.bin", 12);
  fs::remove(checkpoints() / "step-00000040" / "manifest.json");
  EXPECT_EQ(find_latest(run_), checkpoints() / "step-00000020");
  EXPECT_CONTAINS(warnings_.str(), "step-00000030/tensors.bin: expected 600 bytes of tensor 'conv.weight' at offset 0");
  EXPECT_CONTAINS(warnings_.str(), "step-00000040/manifest.json: No such file or directory");

  // The training goes on from 20: from now on its own checkpoints are the newest.
  for (const std::int64_t step : {25, 30}) {
    save_checkpoint(run_, {.step = step}, tensors, 1);
    EXPECT_EQ(find_latest(run_), checkpoints() / ("step-000000" + std::to_string(step)));
  }
  EXPECT_EQ(names_in(checkpoints()),
            (std::set<std::string>{"step-00000030", "step-00000030.old", "step-00000040.old"}));
  // Saved once more: the newer one counts.
  tensors = small_tensors();
  save_checkpoint(run_, {.step = 30}, tensors, 1);
  std::vector<NamedTensor> loaded = zeros_like(tensors);
  load_checkpoint(find_latest(run_), loaded);
  expect_equal(tensors, loaded);
}

TEST_F(CheckpointTest, WhereThereIsNoneTheErrorSaysWhatWasExpected) {
  const std::string expected = ": expected a run directory with checkpoints/step-00000120, found no checkpoint";
  EXPECT_EQ(thrown_by<std::invalid_argument>([&] { find_latest(run_); }), run_.string() + expected);
  EXPECT_EQ(thrown_by<std::invalid_argument>([&] { find_latest(run_ / "absent"); }),
            (run_ / "absent").string() + expected);
  EXPECT_CONTAINS(thrown_by<std::invalid_argument>([&] { load_checkpoint(run_, {}); }), "No such file or directory");
  const fs::path path = save_checkpoint(run_, {.step = 1}, small_tensors());
  overwrite(path / "manifest.json", "{}");
  EXPECT_CONTAINS(thrown_by<std::invalid_argument>([&] { find_latest(run_); }), "found only damaged ones (1)");
}

TEST_F(CheckpointTest, AWriteThatFailsLeavesTheOldOnesAndNothingElse) {
  const std::vector<NamedTensor> old = small_tensors();
  const fs::path good = save_checkpoint(run_, {.step = 1}, old, 1);
  const std::vector<NamedTensor> large = {{"large", random_tensor({1 << 20}, DType::u8)}};

  // A limit on the size of files fails in the middle of a write, as a full disk does.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t limit : {rlim_t{0}, rlim_t{1000}, rlim_t{1} << 19}) {
    const rlimit small{limit, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string error = thrown_by<Error>([&] { save_checkpoint(run_, {.step = 2}, large, 1); });
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_CONTAINS(error, "step-00000002 was not saved");
    EXPECT_CONTAINS(error, "tensors.bin: File too large");
    EXPECT_EQ(names_in(checkpoints()), std::set<std::string>{"step-00000001"});
  }
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(find_latest(run_), good);
  EXPECT_EQ(save_checkpoint(run_, {.step = 2}, large, 1), checkpoints() / "step-00000002");
}

TEST_F(CheckpointTest, ADirectoryThatCannotBeWrittenIsNamed) {
  overwrite(run_ / "file", "in the way");
  EXPECT_CONTAINS(thrown_by<Error>([&] { save_checkpoint(run_ / "file", {.step = 1}, small_tensors()); }),
                  "Not a directory");
  if (::geteuid() != 0) {  // root may write everywhere
    fs::permissions(run_, fs::perms::owner_read | fs::perms::owner_exec);
    EXPECT_CONTAINS(thrown_by<Error>([&] { save_checkpoint(run_, {.step = 1}, small_tensors()); }),
                    "Permission denied");
    fs::permissions(run_, fs::perms::owner_all);
  }
}

TEST_F(CheckpointTest, WrongArgumentsAreRefusedBeforeAnythingIsWritten) {
  const Tensor tensor = random_tensor({3}, DType::f32);
  const std::vector<NamedTensor> twice = {{"weight", tensor}, {"bias", tensor}, {"weight", tensor}};
  const std::vector<NamedTensor> undefined = {{"weight", Tensor()}};
  EXPECT_EQ(thrown_by<std::invalid_argument>([&] { save_checkpoint(run_, {.step = 1}, twice); }),
            "save_checkpoint: expected each name once, got 'weight' twice");
  EXPECT_EQ(thrown_by<std::invalid_argument>([&] { save_checkpoint(run_, {.step = 1}, undefined); }),
            "save_checkpoint: expected a tensor, got an undefined one as 'weight'");
  thrown_by<std::invalid_argument>([&] { save_checkpoint(run_, {.step = -1}, {}); });
  thrown_by<std::invalid_argument>([&] { save_checkpoint(run_, {.step = 1}, {}, -1); });
  EXPECT_TRUE(fs::is_empty(run_));
}

TEST_F(CheckpointTest, RestoringRefreshesValuesThatAreCopies) {
  Linear saved(3, 2);
  save_checkpoint(run_, {.step = 7}, model_tensors(saved));
  Linear restored(3, 2);
  for (Parameter* parameter : restored.parameters()) testing::read_as_bf16(*parameter);
  EXPECT_EQ(restore(run_, restored, {}, *make_local_groups(1).front()), 7);
  for (const Parameter* parameter : restored.parameters()) {
    const std::vector<float> masters = parameter->master.to_host<float>();
    const std::vector<bfloat16> values = parameter->value.to_host<bfloat16>();
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i].bits, bfloat16_of(masters[i]).bits);
  }
  expect_equal(model_tensors(saved), model_tensors(restored));
}

TEST_F(CheckpointTest, RestoringWhatDoesNotFitIsRefusedByEachRank) {
  Linear saved(3, 2);
  save_checkpoint(run_, {.step = 7}, model_tensors(saved));
  run_local_world(2, [this](ProcessGroup& group) {
    Linear other(3, 4);
    EXPECT_THROW(restore(run_, other, {}, group), std::invalid_argument) << "rank " << group.rank();
  });
}

class Net : public Module {
 public:
  Net() {
    for (int i = 0; i < 3; ++i) {
      parameters_.push_back(
          register_parameter("p" + std::to_string(i), Tensor::zeros({40, 100 + i}, DType::f32), true));
    }
    register_buffer("running_mean", Tensor::zeros({7}, DType::f32));
  }

 private:
  std::vector<std::shared_ptr<Parameter>> parameters_;
};

// Bucket sizes decide where a parameter lies in the arena: a momentum must find its parameter all the same.
TEST_F(CheckpointTest, AnOptimizersStateFitsAnArenaOfOtherBuckets) {
  const auto fill = [this](const std::vector<NamedTensor>& tensors) {
    for (const NamedTensor& tensor : tensors) {
      tensor.value.copy_from_host(random_tensor(tensor.value.shape(), tensor.value.dtype()));
    }
  };
  const auto state_of = [](Net& net, const ParameterArena& arena, const Optimizer& optimizer) {
    std::vector<NamedTensor> tensors = model_tensors(net);
    for (NamedTensor& moment : optimizer_tensors(arena, optimizer)) tensors.push_back(std::move(moment));
    return tensors;
  };
  Net saved_net;
  const ParameterArena saved_arena(saved_net.parameters());
  const auto saved_optimizer = make_optimizer(AdamWConfig{}, saved_arena);
  const std::vector<NamedTensor> saved = state_of(saved_net, saved_arena, *saved_optimizer);
  ASSERT_EQ(saved.size(), 3 + 1 + 2 * 3);
  fill(saved);
  save_checkpoint(run_, {.step = 1}, saved);

  Net net;
  const ParameterArena arena(net.parameters(), {.first_mib = 0.001, .cap_mib = 0.001});
  ASSERT_NE(arena.slots()[1].range.offset, saved_arena.slots()[1].range.offset);
  const auto optimizer = make_optimizer(AdamWConfig{}, arena);
  const std::vector<NamedTensor> loaded = state_of(net, arena, *optimizer);
  load_checkpoint(find_latest(run_), loaded);
  expect_equal(saved, loaded);

  Net evaluated;
  load_checkpoint(find_latest(run_), model_tensors(evaluated), Surplus::ignore);
  expect_equal(model_tensors(saved_net), model_tensors(evaluated));
}

}  // namespace
}  // namespace lockstep
