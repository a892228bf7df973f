#include "kernels/elementwise.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep::kernels
