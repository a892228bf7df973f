#include "framework/distributed/gpu_assignment.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/worlds.h"

namespace lockstep {
namespace {

Environment rank_of(int local_rank, int local_world_size, Launcher launcher) {
  return {.rank = local_rank,
          .world_size = local_world_size,
          .local_rank = local_rank,
          .local_world_size = local_world_size,
          .launcher = launcher};
}

TEST(GpuOfRank, IsTheLocalRanks) {
  for (const Launcher launcher : {Launcher::none, Launcher::lockstep, Launcher::torchrun, Launcher::slurm}) {
    EXPECT_EQ(gpu_of_rank(rank_of(0, 1, launcher), 1), 0);
    EXPECT_EQ(gpu_of_rank(rank_of(1, 2, launcher), 2), 1);
    EXPECT_EQ(gpu_of_rank(rank_of(1, 2, launcher), 8), 1);
  }
}

TEST(GpuOfRank, IsTheOnlyOneWhereALauncherShowsOneToEach) {
  EXPECT_EQ(gpu_of_rank(rank_of(3, 4, Launcher::slurm), 1), 0);
  EXPECT_EQ(gpu_of_rank(rank_of(1, 2, Launcher::open_mpi), 1), 0);
}

TEST(GpuOfRank, RefusesMoreRanksThanGpus) {
  if (gpus_are_shared()) GTEST_SKIP() << "LOCKSTEP_SHARE_GPUS is set";
  for (const int visible : {1, 2}) {
    try {
      gpu_of_rank(rank_of(0, 3, Launcher::none), visible);
      FAIL() << visible;
    } catch (const std::invalid_argument& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("at most " + std::to_string(visible) + " ranks"), std::string::npos) << text;
      EXPECT_NE(text.find("got 3"), std::string::npos) << text;
    }
  }
  EXPECT_THROW(gpu_of_rank(rank_of(2, 3, Launcher::torchrun), 2), std::invalid_argument);
}

class SharedGpus : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv(kVariable, "1", 1); }
  void TearDown() override { before_ ? ::setenv(kVariable, before_->c_str(), 1) : ::unsetenv(kVariable); }

 private:
  static constexpr const char* kVariable = "LOCKSTEP_SHARE_GPUS";
  const std::optional<std::string> before_ = process_environment(kVariable);
};

TEST_F(SharedGpus, RanksGoRoundThem) {
  for (int rank = 0; rank < 5; ++rank) EXPECT_EQ(gpu_of_rank(rank_of(rank, 5, Launcher::lockstep), 2), rank % 2);
  EXPECT_THROW(gpu_of_rank(rank_of(0, 2, Launcher::none), 0), std::invalid_argument) << "there is none to share";
}

TEST_F(SharedGpus, AreAskedForByOne) {
  const auto set_to = [](std::optional<std::string> value) {
    return gpus_are_shared([&](const char*) { return value; });
  };
  EXPECT_FALSE(set_to(std::nullopt));
  EXPECT_FALSE(set_to("0"));
  EXPECT_TRUE(set_to("1"));
  EXPECT_THROW(set_to("yes"), std::invalid_argument);
}

std::vector<std::string> refusals(const std::vector<std::string>& uuids) {
  std::vector<std::string> texts(uuids.size());
  run_store_world(static_cast<int>(uuids.size()), [&](Store& store) {
    const auto rank = static_cast<std::size_t>(store.rank());
    try {
      expect_own_gpu(store, uuids[rank], "GPU 0 (a GPU)");
    } catch (const std::invalid_argument& error) {
      texts[rank] = error.what();
    }
  });
  return texts;
}

TEST(OwnGpu, RanksOnOneGpuAreNamedOnEveryRank) {
  if (gpus_are_shared()) GTEST_SKIP() << "LOCKSTEP_SHARE_GPUS is set";
  for (const std::string& text : refusals({"GPU-a", "GPU-b", "GPU-a"})) {
    EXPECT_NE(text.find("ranks 0 and 2 are both on GPU-a"), std::string::npos) << text;
  }
}

TEST(OwnGpu, ARankThatComesLateIsWaitedFor) {
  run_store_world(
      2,
      [](Store& store) {
        if (store.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        EXPECT_NO_THROW(expect_own_gpu(store, "GPU-" + std::to_string(store.rank()), "GPU 0 (a GPU)"));
      },
      std::chrono::seconds(1));
}

TEST(OwnGpu, RanksAgreeOnSharingThem) {
  std::string text;
  run_store_world(2, [&](Store& store) {
    if (store.rank() == 1) {  // as one that was told to share
      store.gather("gpus shared", gpus_are_shared() ? "0" : "1");
      return;
    }
    try {
      expect_own_gpu(store, "GPU-a", "GPU 0 (a GPU)");
    } catch (const std::invalid_argument& error) {
      text = error.what();
    }
  });
  EXPECT_NE(text.find("LOCKSTEP_SHARE_GPUS"), std::string::npos) << text;
  EXPECT_NE(text.find("on rank 1"), std::string::npos) << text;
}

TEST_F(SharedGpus, OneMayBeAnothersToo) {
  for (const std::string& text : refusals({"GPU-a", "GPU-a"})) EXPECT_EQ(text, "");
}

TEST(OwnGpu, DifferentGpusAreFine) {
  for (const std::string& text : refusals({"GPU-a", "GPU-b", "GPU-c"})) EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace lockstep
