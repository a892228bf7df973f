#include "framework/optim/parameter_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "framework/core/context.h"
#include "tests/support/bf16_value.h"

namespace lockstep {
namespace {

// Parameters whose elements count up from the index of the parameter; every second one is not decayed.
class ArenaTest : public ::testing::Test {
 protected:
  void make(const std::vector<Shape>& shapes) {
    for (const Shape& shape : shapes) {
      std::vector<float> values(static_cast<std::size_t>(shape.numel()));
      std::iota(values.begin(), values.end(), static_cast<float>(owned_.size() + 1));
      const bool decay = owned_.size() % 2 == 0;
      owned_.push_back(std::make_unique<Parameter>("p" + std::to_string(owned_.size()),
                                                   Tensor::from_host(std::span<const float>(values), shape), decay));
      order_.push_back(owned_.back().get());
    }
  }

  std::vector<std::unique_ptr<Parameter>> owned_;
  std::vector<Parameter*> order_;
};

TEST_F(ArenaTest, KeepsValuesAndShapes) {
  make({{30, 50}, {50}, {3, 5, 5, 2}, {}});
  std::vector<std::vector<float>> before;
  for (const Parameter* parameter : order_) before.push_back(parameter->value.to_host<float>());
  const ParameterArena arena(order_);
  for (std::size_t i = 0; i < order_.size(); ++i) {
    EXPECT_EQ(order_[i]->value.to_host<float>(), before[i]);
    EXPECT_EQ(order_[i]->value.variable()->parameter, order_[i]);
    EXPECT_EQ(order_[i]->grad().shape(), order_[i]->value.shape());
  }
  EXPECT_EQ(order_[2]->value.shape(), (Shape{3, 5, 5, 2}));
}

TEST_F(ArenaTest, ParametersAreSlicesOfIt) {
  make({{1500}, {10}});
  const ParameterArena arena(order_);
  ASSERT_EQ(arena.slots().size(), 2U);
  EXPECT_EQ(arena.slots()[1].range.offset, 2048);
  EXPECT_EQ(arena.slots()[1].range.count, 10);
  EXPECT_EQ(order_[1]->value.view().as<float>(), arena.values().view().as<float>() + 2048);
  EXPECT_EQ(order_[1]->grad().view().as<float>(), arena.grads().view().as<float>() + 2048);
}

TEST_F(ArenaTest, MasterAndValueAreOneUnlessForwardReadsBf16) {
  make({{1500}, {10}});
  const ParameterArena arena(order_);
  EXPECT_EQ(arena.values().view().data, arena.masters().view().data);
  EXPECT_EQ(order_[1]->value.view().data, order_[1]->master.view().data);
  EXPECT_EQ(order_[1]->master.variable(), nullptr);
}

TEST_F(ArenaTest, Bf16ValuesAndGradientsAreSlicesOfTheirOwn) {
  make({{30, 50}, {10}, {}});
  for (Parameter* parameter : order_) testing::read_as_bf16(*parameter);
  const ParameterArena arena(order_, {}, DType::bf16);
  EXPECT_EQ(arena.masters().dtype(), DType::f32);
  EXPECT_EQ(arena.values().dtype(), DType::bf16);
  EXPECT_EQ(arena.grads().dtype(), DType::bf16);
  const Parameter& second = *order_[1];
  EXPECT_EQ(second.master.view().as<float>(), arena.masters().view().as<float>() + 2048);
  EXPECT_EQ(second.value.view().as<bfloat16>(), arena.values().view().as<bfloat16>() + 2048);
  EXPECT_EQ(second.grad().view().as<bfloat16>(), arena.grads().view().as<bfloat16>() + 2048);
  EXPECT_EQ(order_[0]->value.shape(), (Shape{30, 50}));
  EXPECT_EQ(order_[0]->value.variable()->parameter, order_[0]);
  // Half way between two values of bf16: 256 and 258, 258 and 260. Those with an even last digit are 256 and 260.
  order_[0]->master.copy_from_host({std::vector<float>(1500, 257.0F).data(), DType::f32, {1500}});
  second.master.copy_from_host({std::vector<float>(10, 259.0F).data(), DType::f32, {10}});
  arena.refresh_values();
  const std::vector<bfloat16> values = arena.values().to_host<bfloat16>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i].bits, i < 1500 ? 0x4380 : 2048 <= i && i < 2058 ? 0x4382 : i == 3072 ? 0x4040 : 0) << i;
  }
}

TEST_F(ArenaTest, CapsCountTheBytesOfTheGradients) {
  make({{1024}, {1024}, {1024}, {1024}});
  const BucketCaps caps = {.first_mib = 4.0 / 1024, .cap_mib = 4.0 / 1024};
  EXPECT_EQ(ParameterArena(order_, caps).buckets().size(), 4U);
  EXPECT_EQ(ParameterArena(order_, caps, DType::bf16).buckets().size(), 2U);
}

TEST_F(ArenaTest, PaddingIsZero) {
  make({{1500}, {10}, {1024}});
  const ParameterArena arena(order_);
  std::vector<float> values = arena.values().to_host<float>();
  for (const ArenaSlot& slot : arena.slots()) {
    const auto begin = values.begin() + slot.range.offset;
    EXPECT_EQ(std::count(begin, begin + slot.range.count, 0.0F), 0);
    std::fill_n(begin, slot.range.count, 0.0F);
  }
  EXPECT_EQ(std::count(values.begin(), values.end(), 0.0F), static_cast<std::ptrdiff_t>(values.size()));
}

TEST_F(ArenaTest, OneByteAChunkSaysWhetherItIsDecayed) {
  make({{1500}, {10}, {1024}});
  const ParameterArena arena(order_);
  EXPECT_EQ(arena.decay().to_host<std::uint8_t>(), (std::vector<std::uint8_t>{1, 1, 0, 1}));
}

TEST_F(ArenaTest, BucketsCloseAtTheirCapAndStartAligned) {
  // 1 KiB first, then 8 KiB: {p0}, {p1, p2, p3}, {p4}.
  make({{300}, {1000}, {1000}, {1000}, {10}});
  const ParameterArena arena(order_, {.first_mib = 1.0 / 1024, .cap_mib = 8.0 / 1024});
  ASSERT_EQ(arena.buckets().size(), 3U);
  std::int64_t parameters = 0;
  std::size_t next_slot = 0;
  for (const Bucket& bucket : arena.buckets()) {
    EXPECT_EQ(bucket.range.offset % ParameterArena::kBucketAlignment, 0);
    EXPECT_EQ(bucket.range.count % ParameterArena::kChunk, 0);
    EXPECT_EQ(bucket.first_slot, next_slot);
    next_slot = bucket.end_slot;
    for (std::size_t i = bucket.first_slot; i < bucket.end_slot; ++i) {
      const Range range = arena.slots()[i].range;
      EXPECT_EQ(range.offset % ParameterArena::kChunk, 0);
      EXPECT_GE(range.offset, bucket.range.offset);
      EXPECT_LE(range.offset + range.count, bucket.range.offset + bucket.range.count);
      ++parameters;
    }
  }
  EXPECT_EQ(parameters, 5);
  EXPECT_EQ(arena.buckets()[1].first_slot, 1U);
  EXPECT_EQ(arena.buckets()[2].first_slot, 4U);
  EXPECT_EQ(arena.whole().count, arena.values().numel());
}

TEST_F(ArenaTest, NoParameterIsMarkedWrittenInANewStep) {
  make({{10}, {10}});
  ParameterArena arena(order_);
  order_[1]->variable().written = true;
  arena.begin_step();
  EXPECT_FALSE(order_[0]->variable().written);
  EXPECT_FALSE(order_[1]->variable().written);
}

TEST_F(ArenaTest, RefusesAParameterListedTwice) {
  make({{10}, {10}});
  order_.push_back(order_[0]);
  EXPECT_THROW(ParameterArena{order_}, std::invalid_argument);
}

TEST_F(ArenaTest, RefusesNoParametersMixedTypesAndNoCap) {
  EXPECT_THROW(ParameterArena{order_}, std::invalid_argument);
  make({{10}});
  EXPECT_THROW(ParameterArena(order_, {.first_mib = 0.0}), std::invalid_argument);
  EXPECT_THROW(ParameterArena(order_, {}, DType::f64), std::invalid_argument);
  EXPECT_THROW(ParameterArena(order_, {}, DType::i32), std::invalid_argument);
  make({{10}});
  testing::read_as_bf16(*order_[1]);
  EXPECT_THROW(ParameterArena{order_}, std::invalid_argument);
  order_.resize(1);
  Parameter other("other", Tensor::zeros({4}, DType::f64), true);
  order_.push_back(&other);
  EXPECT_THROW(ParameterArena{order_}, std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
