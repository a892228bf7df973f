#include "framework/optim/gradient_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "framework/core/context.h"
#include "tests/support/seed.h"

namespace lockstep {
namespace {

// One parameter of `size` elements with a random gradient; the norm is computed here in plain double precision.
struct Case {
  explicit Case(std::int64_t size) : parameter("p", Tensor::zeros({size}, context().dtype()), true) {
    Parameter* order[] = {&parameter};
    arena = std::make_unique<ParameterArena>(order);
    std::mt19937_64 engine(testing::test_seed());
    std::uniform_real_distribution<float> draw(-1, 1);
    long double sum = 0;
    std::vector<float> f32;
    std::vector<double> f64;
    for (std::int64_t i = 0; i < size; ++i) {
      f32.push_back(draw(engine));
      f64.push_back(f32.back());
      sum += static_cast<long double>(f64.back()) * f64.back();
    }
    expected = static_cast<double>(std::sqrt(sum));
    if (context().dtype() == DType::f64) {
      parameter.grad().copy_from_host({f64.data(), DType::f64, parameter.value.shape()});
    } else {
      parameter.grad().copy_from_host({f32.data(), DType::f32, parameter.value.shape()});
    }
  }

  Parameter parameter;
  std::unique_ptr<ParameterArena> arena;
  double expected = 0;
};

TEST(GradientNorm, IsTheL2NormOfTheWholeArena) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    Context rank(DeviceType::cpu, 1, dtype);
    const ContextScope scope(rank);
    for (const std::int64_t size : {1, 3, 1000, 65536, 65537, 200001}) {
      Case test(size);
      GradientNorm norm(*test.arena, 0.0);
      norm.measure();
      EXPECT_NEAR(norm.norm(), test.expected, 1e-12 * test.expected) << size;
      EXPECT_EQ(*norm.clip_factor(), 1.0);
    }
  }
}

TEST(GradientNorm, ClipsOnlyWhatIsLarger) {
  Case test(5000);
  GradientNorm tight(*test.arena, 0.5 * test.expected);
  tight.measure();
  EXPECT_NEAR(*tight.clip_factor(), 0.5, 1e-6);
  GradientNorm loose(*test.arena, 2.0 * test.expected);
  loose.measure();
  EXPECT_EQ(*loose.clip_factor(), 1.0);
}

TEST(GradientNorm, HasTheSameBitsForAnyNumberOfThreads) {
  std::vector<double> norms;
  for (const int threads : {1, 2, 3}) {
    Context rank(DeviceType::cpu, threads);
    const ContextScope scope(rank);
    Case test(300'000);
    GradientNorm norm(*test.arena, 1.0);
    norm.measure();
    norms.push_back(norm.norm());
  }
  EXPECT_EQ(norms[0], norms[1]);
  EXPECT_EQ(norms[0], norms[2]);
}

TEST(GradientNorm, ShowsANaN) {
  Case test(2000);
  std::vector<float> gradient = test.parameter.grad().to_host<float>();
  gradient[1500] = std::numeric_limits<float>::quiet_NaN();
  test.parameter.grad().copy_from_host({gradient.data(), DType::f32, test.parameter.value.shape()});
  GradientNorm norm(*test.arena, 1.0);
  norm.measure();
  EXPECT_TRUE(std::isnan(norm.norm()));
}

}  // namespace
}  // namespace lockstep
