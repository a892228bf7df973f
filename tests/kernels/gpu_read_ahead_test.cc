// What forward read is written right before it, and read by backward before its turn: many times in a graph, and then
// by kernels that start one after the other.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/cuda_graph.h"
#include "framework/core/gpu.h"
#include "framework/core/tensor.h"
#include "kernels/cuda/linear_tiles.h"
#include "kernels/cuda/patch_conv2d.h"
#include "kernels/elementwise.h"
#include "kernels/softmax_cross_entropy.h"
#include "tests/support/op_run.h"
#include "tests/support/random.h"

namespace lockstep::kernels {
namespace {

using testing::random_values;
using testing::to_doubles;
using testing::to_tensor;
using Values = std::vector<double>;

class GpuReadAhead : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const GpuCount gpus = count_gpus(); gpus.count == 0) GTEST_SKIP() << gpus.why_none;
  }

  static Tensor drawn(const Shape& shape, DType dtype, std::uint64_t stream) {
    return to_tensor(random_values(shape.numel(), -1, 1, stream), shape, dtype);
  }

  // Tensors that change from link to link of a chain, the last of them right before the kernels that read them.
  struct Changing {
    std::vector<Tensor> values, steps;

    void add(const Shape& shape, DType dtype) {
      values.push_back(drawn(shape, dtype, 2 * values.size()));
      steps.push_back(drawn(shape, dtype, 2 * steps.size() + 1));
    }
    void change() const {
      for (std::size_t i = 0; i < values.size(); ++i) cuda::add(context().exec(), values[i], steps[i], values[i]);
    }
  };

  // chain(changing) makes the tensors that a link needs, and returns the link, which adds up what it computes in the
  // tensor that is looked at in the end.
  struct Chain {
    std::function<void()> link;
    Tensor result;
  };
  static void expect_equal_bits(const std::string& name, const std::function<Chain(Changing&)>& make) {
    std::vector<Values> results;
    for (const bool programmatic : {true, false}) {
      Context gpu({.device = DeviceType::cuda, .programmatic_launch = programmatic});
      const ContextScope scope(gpu);
      Changing changing;
      const Chain chain = make(changing);
      const auto link = [&] {
        changing.change();
        chain.link();
      };
      link();  // loads the kernels
      CudaGraph graph;
      graph.capture([&] {
        for (int i = 0; i < 100; ++i) link();
      });
      graph.launch();
      results.push_back(to_doubles(chain.result));
    }
    EXPECT_EQ(results[0], results[1]) << name;
  }
};

TEST_F(GpuReadAhead, LinearTiles) {
  const Shape x_shape = {64, 784}, weight_shape = {512, 784}, y_shape = {64, 512};
  const auto tilings = [&] {
    Context gpu({.device = DeviceType::cuda});
    const ContextScope scope(gpu);
    return cuda::linear_tilings(Tensor::zeros(x_shape, DType::f32), weight_shape);
  }();
  for (const cuda::Tiling tiling : tilings) {
    for (const bool weight_last : {false, true}) {
      expect_equal_bits(cuda::tiling_name(tiling), [&](Changing& changing) {
        changing.add(weight_last ? x_shape : weight_shape, DType::f32);
        changing.add(weight_last ? weight_shape : x_shape, DType::f32);
        const Tensor x = changing.values[weight_last ? 0 : 1], weight = changing.values[weight_last ? 1 : 0];
        const Tensor y = Tensor::zeros(y_shape, DType::f32), dx = Tensor::zeros(x_shape, DType::f32);
        const Tensor dweight = Tensor::zeros(weight_shape, DType::f32);
        const auto link = [=] {
          cuda::linear_tiles_forward(context().exec(), x, weight, {}, true, y, tiling);
          cuda::linear_tiles_backward(context().exec(), y, x, weight, {dx, true}, {dweight, true}, {}, tiling);
        };
        return Chain{link, weight_last ? dx : dweight};
      });
    }
  }
}

TEST_F(GpuReadAhead, ConvolutionsByPatches) {
  const Shape x_shape = {64, 14, 14, 6}, weight_shape = {16, 5, 5, 6}, y_shape = {64, 10, 10, 16};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const cuda::PatchConv2d& by = dtype == DType::f32 ? cuda::kPatchLoops : cuda::kPatchTiles;
    ASSERT_TRUE(by.forward_fits(x_shape, weight_shape, y_shape, {}));
    ASSERT_TRUE(by.data_gradient_fits(x_shape, weight_shape, y_shape, {}));
    ASSERT_TRUE(by.weight_gradient_fits(x_shape, weight_shape, y_shape, {}));
    for (const bool to_x : {false, true}) {
      expect_equal_bits(dtype_name(dtype), [&](Changing& changing) {
        changing.add(to_x ? x_shape : weight_shape, dtype);
        changing.add(to_x ? weight_shape : x_shape, dtype);
        const Tensor x = changing.values[to_x ? 0 : 1], weight = changing.values[to_x ? 1 : 0];
        const Tensor y = Tensor::zeros(y_shape, dtype),
                     result = Tensor::zeros(to_x ? x_shape : weight_shape, DType::f32);
        const auto link = [=] {
          by.forward(context().exec(), x, weight, {}, {}, true, y);
          if (to_x) {
            by.data_gradient(context().exec(), y, weight, {}, {result, true});
          } else {
            by.weight_gradient(context().exec(), y, x, {}, {result, true}, {});
          }
        };
        return Chain{link, result};
      });
    }
  }
}

TEST_F(GpuReadAhead, TheLossOfShortRows) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    expect_equal_bits(dtype_name(dtype), [&](Changing& changing) {
      const Shape shape = {64, 10};
      changing.add(shape, dtype);
      const Tensor logits = changing.values[0], gradient = Tensor::zeros(shape, dtype),
                   sum = Tensor::zeros(shape, dtype);
      const Tensor labels = Tensor::zeros({64}, DType::i32), lse = Tensor::zeros({64}, DType::f32);
      const Tensor loss = Tensor::zeros({}, DType::f32), dy = to_tensor({1.0}, {}, DType::f32);
      const auto link = [=] {
        cuda::softmax_cross_entropy_forward(context().exec(), logits, labels, 0.0, lse, loss);
        cuda::softmax_cross_entropy_backward(context().exec(), dy, logits, labels, lse, 0.0, gradient);
        cuda::add(context().exec(), sum, gradient, sum);
      };
      return Chain{link, sum};
    });
  }
}

}  // namespace
}  // namespace lockstep::kernels
