#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "framework/core/context.h"
#include "framework/core/tensor.h"
#include "tests/support/random.h"

namespace lockstep::kernels {
namespace {

template <class T>
class Elementwise : public ::testing::Test {
 protected:
  static Tensor tensor(const std::vector<T>& values) {
    return Tensor::from_host<T>(values, {static_cast<std::int64_t>(values.size())});
  }
  static Tensor nan(std::int64_t size) {
    return tensor(std::vector<T>(static_cast<std::size_t>(size), std::numeric_limits<T>::quiet_NaN()));
  }
  const ExecContext& exec_ = context().exec();
};

using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, Types);

TYPED_TEST(Elementwise, FillSetsEveryElement) {
  for (const std::int64_t size : {0, 1, 17, 1000}) {
    const Tensor y = TestFixture::nan(size);
    cpu::fill(this->exec_, y, -2.5);
    EXPECT_EQ(y.to_host<TypeParam>(), std::vector<TypeParam>(static_cast<std::size_t>(size), TypeParam(-2.5)));
  }
}

TYPED_TEST(Elementwise, ArithmeticMatchesPlainLoops) {
  for (const std::int64_t size : {0, 1, 3, 17, 129, 1000}) {
    const auto a = testing::random_values<TypeParam>(size, -1, 1, 0);
    const auto b = testing::random_values<TypeParam>(size, -1, 1, 1);
    const Tensor sum = TestFixture::nan(size), product = TestFixture::nan(size), scaled = TestFixture::nan(size);
    cpu::add(this->exec_, TestFixture::tensor(a), TestFixture::tensor(b), sum);
    cpu::multiply(this->exec_, TestFixture::tensor(a), TestFixture::tensor(b), product);
    cpu::scale(this->exec_, TestFixture::tensor(a), 0.3, {scaled, false});
    const auto sums = sum.to_host<TypeParam>(), products = product.to_host<TypeParam>(),
               multiples = scaled.to_host<TypeParam>();
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(sums[i], a[i] + b[i]);
      EXPECT_EQ(products[i], a[i] * b[i]);
      EXPECT_EQ(multiples[i], TypeParam(0.3) * a[i]);
    }
  }
}

TYPED_TEST(Elementwise, AccumulateOverwritesOrAdds) {
  const Tensor source = TestFixture::tensor({1, 2, 3});
  const Tensor target = TestFixture::nan(3);
  cpu::accumulate(this->exec_, source, {target, false});
  EXPECT_EQ(target.to_host<TypeParam>(), (std::vector<TypeParam>{1, 2, 3}));
  cpu::accumulate(this->exec_, source, {target, true});
  EXPECT_EQ(target.to_host<TypeParam>(), (std::vector<TypeParam>{2, 4, 6}));
}

// Every bf16 pattern there and back, and what lies between neighbours: all values of the upper half word, and lower
// halves around the middle.
TEST(Bf16, AccumulateConvertsToNearestEven) {
  std::vector<float> values;
  std::vector<std::uint16_t> expected;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const std::uint32_t lower : {0x0u, 0x1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const auto value = std::bit_cast<float>(upper << 16 | lower);
      values.push_back(value);
      const bool up = lower > 0x8000 || (lower == 0x8000 && upper % 2 == 1);
      expected.push_back(static_cast<std::uint16_t>(std::isnan(value) ? upper | 0x40 : upper + (up ? 1 : 0)));
    }
  }
  const auto size = static_cast<std::int64_t>(values.size());
  const Tensor narrow = Tensor::empty({size}, DType::bf16), wide = Tensor::empty({size}, DType::f32);
  const ExecContext& exec = context().exec();
  cpu::accumulate(exec, Tensor::from_host<float>(values, {size}), {narrow, false});
  cpu::accumulate(exec, narrow, {wide, false});
  const auto rounded = narrow.to_host<bfloat16>();
  const auto widened = wide.to_host<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(rounded[i].bits, expected[i]) << values[i];
    ASSERT_EQ(std::bit_cast<std::uint32_t>(widened[i]), std::uint32_t{expected[i]} << 16) << values[i];
  }
}

TEST(Bf16, AccumulateAddsInF32AndRoundsOnce) {
  const std::vector<bfloat16> one = {{0x3f80}};
  const Tensor narrow = Tensor::from_host<bfloat16>(one, {1});
  const ExecContext& exec = context().exec();
  // 1 + 2^-8 + 2^-20 is above the middle between 1 and its successor 1 + 2^-7.
  cpu::accumulate(exec, Tensor::from_host<float>(std::vector{0x1p-8F + 0x1p-20F}, {1}), {narrow, true});
  EXPECT_EQ(narrow.to_host<bfloat16>()[0].bits, 0x3f81);
  const Tensor wide = Tensor::from_host<float>(std::vector{0x1p-20F}, {1});
  cpu::accumulate(exec, narrow, {wide, true});
  EXPECT_EQ(wide.to_host<float>()[0], 1 + 0x1p-7F + 0x1p-20F);
}

}  // namespace
}  // namespace lockstep::kernels
