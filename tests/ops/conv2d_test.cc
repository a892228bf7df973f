#include "framework/ops/conv2d.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/support/random.h"

namespace lockstep::testing {
namespace {

// The definition: zeros outside the image, no flip of the kernel.
std::vector<double> reference(const std::vector<double>& x, const Shape& xs, const std::vector<double>& weight,
                              const Shape& ws, const std::vector<double>& bias, const Conv2dParams& params,
                              const Shape& ys) {
  const auto at = [](const std::vector<double>& values, const Shape& shape, std::int64_t a, std::int64_t b,
                     std::int64_t c, std::int64_t d) {
    return values[static_cast<std::size_t>(((a * shape[1] + b) * shape[2] + c) * shape[3] + d)];
  };
  std::vector<double> y;
  for (std::int64_t n = 0; n < ys[0]; ++n) {
    for (std::int64_t i = 0; i < ys[1]; ++i) {
      for (std::int64_t j = 0; j < ys[2]; ++j) {
        for (std::int64_t o = 0; o < ys[3]; ++o) {
          double sum = bias[static_cast<std::size_t>(o)];
          for (std::int64_t p = 0; p < ws[1]; ++p) {
            for (std::int64_t q = 0; q < ws[2]; ++q) {
              const std::int64_t row = i * params.stride + p - params.padding;
              const std::int64_t column = j * params.stride + q - params.padding;
              if (row < 0 || row >= xs[1] || column < 0 || column >= xs[2]) continue;
              for (std::int64_t c = 0; c < ws[3]; ++c) sum += at(x, xs, n, row, column, c) * at(weight, ws, o, p, q, c);
            }
          }
          y.push_back(sum);
        }
      }
    }
  }
  return y;
}

TEST(Conv2d, MatchesTheDefinition) {
  struct Sizes {
    Shape x, weight;
    Conv2dParams params;
    Shape y;
  };
  for (const auto& [x_shape, weight_shape, params, y_shape] :
       {Sizes{{2, 28, 28, 1}, {6, 5, 5, 1}, {.padding = 2}, {2, 28, 28, 6}},
        Sizes{{2, 14, 14, 6}, {16, 5, 5, 6}, {}, {2, 10, 10, 16}},
        Sizes{{1, 11, 9, 3}, {70, 3, 2, 3}, {.stride = 2, .padding = 1}, {1, 6, 5, 70}},
        Sizes{{3, 4, 5, 17}, {3, 1, 1, 17}, {.stride = 3}, {3, 2, 2, 3}}}) {
    const std::vector<double> x = random_values(x_shape.numel(), -1, 1, 0);
    const std::vector<double> weight = random_values(weight_shape.numel(), -1, 1, 1);
    const std::vector<double> bias = random_values(weight_shape[0], -1, 1, 2);
    const Tensor y = conv2d(Tensor::from_host<double>(x, x_shape), Tensor::from_host<double>(weight, weight_shape),
                            Tensor::from_host<double>(bias, {weight_shape[0]}), params);
    ASSERT_EQ(y.shape(), y_shape);
    const std::vector<double> expected = reference(x, x_shape, weight, weight_shape, bias, params, y_shape);
    const std::vector<double> got = y.to_host<double>();
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], 1e-12) << x_shape.to_string() << " " << weight_shape.to_string() << " at " << i;
    }
  }
}

TEST(Conv2d, ReadsNothingOutsideTheImage) {
  // Wherever a kernel reads memory that is not its own, it meets NaN: the image is a slice between two of them.
  const std::int64_t pixels = 5 * 5 * 3;
  std::vector<float> images(static_cast<std::size_t>(3 * pixels), std::numeric_limits<float>::quiet_NaN());
  std::fill_n(images.begin() + pixels, pixels, 1.0F);
  const Tensor x = Tensor::from_host<float>(images, {3, 5, 5, 3}).slice(1, 2);
  const std::vector<float> ones(3 * 3 * 3, 1.0F);
  const Tensor y = conv2d(x, Tensor::from_host<float>(ones, {1, 3, 3, 3}), {}, {.padding = 1});
  const std::vector<float> got = y.to_host<float>();
  for (std::size_t i = 0; i < 25; ++i) {
    const bool edge_row = i / 5 == 0 || i / 5 == 4, edge_column = i % 5 == 0 || i % 5 == 4;
    EXPECT_EQ(got[i], 3.0F * (edge_row ? 2.0F : 3.0F) * (edge_column ? 2.0F : 3.0F));
  }
}

TEST(Conv2d, RefusesWhatDoesNotFit) {
  const Tensor x = Tensor::zeros({2, 5, 5, 3}, DType::f32);
  const Tensor weight = Tensor::zeros({4, 3, 3, 3}, DType::f32);
  EXPECT_THROW(conv2d(Tensor::zeros({5, 5, 3}, DType::f32), weight, {}, {}), std::invalid_argument);
  EXPECT_THROW(conv2d(x, Tensor::zeros({4, 3, 3, 2}, DType::f32), {}, {}), std::invalid_argument);
  EXPECT_THROW(conv2d(x, Tensor::zeros({4, 3, 3, 3}, DType::f64), {}, {}), std::invalid_argument);
  EXPECT_THROW(conv2d(x, weight, Tensor::zeros({3}, DType::f32), {}), std::invalid_argument);
  EXPECT_THROW(conv2d(x, weight, Tensor::zeros({4}, DType::f64), {}), std::invalid_argument);
  EXPECT_THROW(conv2d(x, weight, {}, {.stride = 0}), std::invalid_argument);
  EXPECT_THROW(conv2d(x, weight, {}, {.padding = -1}), std::invalid_argument);
  EXPECT_THROW(conv2d(x, Tensor::zeros({4, 6, 3, 3}, DType::f32), {}, {}), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::testing
