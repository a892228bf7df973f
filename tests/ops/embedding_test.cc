#include "framework/ops/embedding.h"

#include <gtest/gtest.h>

#include "framework/autograd/tape.h"
#include "framework/ops/reduction.h"
#include "tests/support/random.h"

namespace lockstep::testing {
namespace {

Tensor indices_of(const std::vector<std::int32_t>& values) {
  return Tensor::from_host<std::int32_t>(values, {static_cast<std::int64_t>(values.size())});
}

TEST(Embedding, TakesRows) {
  const Tensor table = Tensor::from_host<double>(std::vector<double>{1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor y = embedding(table, indices_of({2, 0, 2, 1}).reshape({2, 2}));
  EXPECT_EQ(y.shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(y.to_host<double>(), (std::vector<double>{5, 6, 1, 2, 5, 6, 3, 4}));
}

TEST(Embedding, GradientCountsHowOftenARowWasTaken) {
  Parameter table("table", Tensor::from_host<double>(random_values(8, -1, 1), {4, 2}), false);
  Tape tape;
  tape.backward(sum(embedding(table.value, indices_of({2, 0, 2, 2}))));
  EXPECT_EQ(table.grad().to_host<double>(), (std::vector<double>{1, 1, 0, 0, 3, 3, 0, 0}));
}

TEST(Embedding, NamesTheIndexOutOfRangeAndItsPlace) {
  const Tensor table = Tensor::zeros({3, 2}, DType::f32);
  for (const std::int32_t index : {-1, 3}) {
    try {
      embedding(table, indices_of({0, 2, index}));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), "embedding: expected indices in [0, 3), got " + std::to_string(index) + " at position 2");
    }
  }
}

TEST(Embedding, RefusesWhatDoesNotFit) {
  EXPECT_THROW(embedding(Tensor::zeros({3}, DType::f32), indices_of({0})), std::invalid_argument);
  EXPECT_THROW(embedding(Tensor::zeros({3, 2}, DType::f32), Tensor::zeros({1}, DType::f32)), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::testing
