// What a kill, a bad disk or a stranger leaves of a checkpoint.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "framework/core/error.h"
#include "tests/train/checkpoint_fixture.h"

namespace lockstep {
namespace {

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
    const std::string before = text_of(path / file);
    for (int trial = 0; trial < 200; ++trial) {
      std::string damaged = before;
      const auto byte = static_cast<std::size_t>(below(static_cast<std::int64_t>(before.size())));
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << below(8)));
      overwrite(path / file, damaged);
      SCOPED_TRACE(std::string(file) + " at offset " + std::to_string(byte));
      const std::string error = thrown_by<std::invalid_argument>([&] { load_checkpoint(path, loaded); });
      EXPECT_CONTAINS(error, (path / file).string());
      EXPECT_EQ(find_latest(run_), good);
    }
    overwrite(path / file, before);
  }
  EXPECT_EQ(find_latest(run_), path);
}

TEST_F(CheckpointTest, DamageIsNamedWithTensorAndOffset) {
  const std::vector<NamedTensor> tensors = small_tensors();
  const fs::path path = save_checkpoint(run_, {.step = 1}, tensors);
  const std::string before = text_of(path / "tensors.bin");
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
    const std::string before = text_of(path / file);
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

}  // namespace
}  // namespace lockstep
