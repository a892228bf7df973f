#include "framework/train/checkpoint.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "framework/nn/module.h"
#include "tests/train/checkpoint_fixture.h"

namespace lockstep {
namespace {

TEST_F(CheckpointTest, GivesBackWhatWasSavedAtTheSameAddresses) {
  std::vector<NamedTensor> saved = small_tensors();
  saved.push_back({"larger than the parts it is read in", random_tensor({3, (4 << 20) + 1}, DType::bf16)});
  const CheckpointInfo info{.step = 120,
                            .seed = std::numeric_limits<std::uint64_t>::max(),
                            .model = "lenet",
                            .data = "fashion \"mnist\"\n",
                            .data_size = 60000,
                            .global_batch = 256,
                            .world_size = 4};
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

TEST_F(CheckpointTest, NamesThatAreNoUtf8StopNoSave) {
  const fs::path path = save_checkpoint(run_, {.step = 1, .data = "caf\xe9"}, small_tensors());
  EXPECT_EQ(find_latest(run_), path);
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
