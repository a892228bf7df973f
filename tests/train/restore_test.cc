#include "framework/train/restore.h"

#include <gtest/gtest.h>

#include "framework/distributed/local_group.h"
#include "framework/nn/layers.h"
#include "kernels/bfloat16.h"
#include "tests/support/bf16_value.h"
#include "tests/support/worlds.h"
#include "tests/train/checkpoint_fixture.h"

namespace lockstep {
namespace {

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

}  // namespace
}  // namespace lockstep
