#include "framework/distributed/bucketer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "framework/core/context.h"
#include "framework/nn/init.h"
#include "framework/optim/parameter_arena.h"
#include "tests/support/seed.h"
#include "tests/support/worlds.h"

namespace lockstep {
namespace {

// Writes down what is reduced, and carries nothing.
class RecordingGroup final : public ProcessGroup {
 public:
  RecordingGroup() : ProcessGroup(0, 2) {}
  std::string_view backend() const override { return "recording"; }
  void abort(const std::string&) override {}

  std::vector<std::string> launched;
  std::vector<std::int64_t> counts;

 protected:
  Work issue(const Collective& collective) override {
    launched.emplace_back(collective.label);
    counts.push_back(collective.out.numel());
    return {};
  }
};

// Parameters p0, p1, ... of 1024 f32, two to a bucket (8 KiB).
struct Model {
  explicit Model(int count) {
    for (int i = 0; i < count; ++i) {
      parameters.push_back(std::make_unique<Parameter>("p" + std::to_string(i), constant({1024}, i), true));
      order.push_back(parameters.back().get());
    }
  }
  static constexpr BucketCaps kTwoEach{.first_mib = 8.0 / 1024, .cap_mib = 8.0 / 1024};

  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<Parameter*> order;
};

TEST(Bucketer, LaunchesABucketWhenItsLastGradientIsReady) {
  Model model(4);
  const ParameterArena arena(model.order, Model::kTwoEach);
  ASSERT_EQ(arena.buckets().size(), 2u);
  RecordingGroup group;
  Bucketer bucketer(arena, group);
  bucketer.begin(model.order);
  bucketer.ready(*model.order[0]);
  EXPECT_TRUE(group.launched.empty());
  bucketer.ready(*model.order[1]);
  EXPECT_EQ(group.launched, std::vector<std::string>{"bucket 0 from p0"});
  bucketer.ready(*model.order[2]);
  EXPECT_EQ(group.launched.size(), 1u);
  bucketer.ready(*model.order[3]);
  EXPECT_EQ(group.launched.size(), 2u);
  EXPECT_EQ(group.counts, (std::vector<std::int64_t>{2048, 2048}));
}

TEST(Bucketer, LaunchesInIndexOrderWhateverTheOrderOfGradients) {
  std::mt19937_64 generator(testing::test_seed());
  Model model(12);
  const ParameterArena arena(model.order, Model::kTwoEach);
  for (int round = 0; round < 20; ++round) {
    RecordingGroup group;
    Bucketer bucketer(arena, group);
    bucketer.begin(model.order);
    std::vector<Parameter*> shuffled = model.order;
    std::shuffle(shuffled.begin(), shuffled.end(), generator);
    for (Parameter* parameter : shuffled) bucketer.ready(*parameter);
    bucketer.finish();
    EXPECT_EQ(group.launched, (std::vector<std::string>{"bucket 0 from p0", "bucket 1 from p2", "bucket 2 from p4",
                                                        "bucket 3 from p6", "bucket 4 from p8", "bucket 5 from p10"}));
  }
}

TEST(Bucketer, WithoutOverlapNothingIsLaunchedBeforeTheEnd) {
  Model model(4);
  const ParameterArena arena(model.order, Model::kTwoEach);
  for (const Overlap overlap : {Overlap::off, Overlap::naive}) {
    RecordingGroup group;
    Bucketer bucketer(arena, group, {.overlap = overlap});
    bucketer.begin(model.order);
    for (Parameter* parameter : model.order) bucketer.ready(*parameter);
    EXPECT_TRUE(group.launched.empty());
    bucketer.finish();
    EXPECT_EQ(group.launched.size(), overlap == Overlap::off ? 2u : 4u);
  }
}

TEST(Bucketer, AParameterWrittenInAnEarlierMicroStepIsNotUnused) {
  Model model(2);
  const ParameterArena arena(model.order, Model::kTwoEach);
  RecordingGroup group;
  Bucketer bucketer(arena, group);
  model.order[0]->variable().written = true;
  Parameter* expected[] = {model.order[1]};
  bucketer.begin(expected);
  bucketer.ready(*model.order[1]);
  bucketer.finish();
  EXPECT_EQ(group.launched.size(), 1u);
}

// What a proof of the link compares the counters with.
TEST(Bucketer, SaysTheBytesThatItReduces) {
  Model model(5);
  const ParameterArena arena(model.order, Model::kTwoEach);
  ASSERT_GT(arena.whole().count, 5 * 1024) << "expected padding between the buckets";
  for (const Overlap overlap : {Overlap::on, Overlap::off, Overlap::naive}) {
    for (const DType wire : {DType::f32, DType::bf16}) {
      RecordingGroup group;
      Bucketer bucketer(arena, group, {.overlap = overlap, .wire_dtype = wire});
      bucketer.begin(model.order);
      for (Parameter* parameter : model.order) bucketer.ready(*parameter);
      bucketer.finish();
      std::vector<std::int64_t> counts;
      for (const Range& range : reduced_ranges(arena, overlap)) counts.push_back(range.count);
      EXPECT_EQ(group.counts, counts);
      const std::int64_t sum = std::accumulate(group.counts.begin(), group.counts.end(), std::int64_t{0});
      EXPECT_EQ(bucketer.reduced_bytes(), sum * dtype_bytes(wire));
    }
  }
}

// Every gradient of rank r is r + 1 + 2^-9, which bf16 rounds to r + 1.
TEST(Bucketer, GradientsTravelInBf16AndComeBack) {
  for (const Overlap overlap : {Overlap::on, Overlap::off, Overlap::naive}) {
    run_local_world(3, [overlap](ProcessGroup& group) {
      Model model(4);
      const ParameterArena arena(model.order, Model::kTwoEach);
      Bucketer bucketer(arena, group, {.overlap = overlap, .wire_dtype = DType::bf16});
      for (int step = 0; step < 2; ++step) {
        const std::vector<float> mine(1024, static_cast<float>(group.rank() + 1) + 0x1p-9F);
        for (const Parameter* parameter : model.order) {
          parameter->grad().copy_from_host({mine.data(), DType::f32, {1024}});
        }
        bucketer.begin(model.order);
        for (Parameter* parameter : model.order) bucketer.ready(*parameter);
        bucketer.finish();
        for (const Parameter* parameter : model.order) {
          EXPECT_EQ(parameter->grad().to_host<float>(), std::vector<float>(1024, 1 + 2 + 3));
        }
      }
    });
  }
}

TEST(Bucketer, RefusesAWireOfOtherTypes) {
  Model model(1);
  RecordingGroup group;
  const ParameterArena arena(model.order);
  EXPECT_THROW(Bucketer(arena, group, {.wire_dtype = DType::f64}), std::invalid_argument);
  const ParameterArena narrow(model.order, {}, DType::bf16);
  EXPECT_THROW(Bucketer(narrow, group, {.wire_dtype = DType::f32}), std::invalid_argument);
}

TEST(Bucketer, RefusesAParameterThatIsNotInTheArena) {
  Model model(2);
  Model other(1);
  const ParameterArena arena(model.order);
  RecordingGroup group;
  Bucketer bucketer(arena, group);
  std::vector<Parameter*> expected = model.order;
  expected.push_back(other.order[0]);
  EXPECT_THROW(bucketer.begin(expected), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
