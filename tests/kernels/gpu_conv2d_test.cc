// The ways to convolve on a GPU, each of which the plan phase may choose, against the CPU in double precision.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/cuda_graph.h"
#include "framework/core/gpu.h"
#include "framework/core/tensor.h"
#include "kernels/conv2d.h"
#include "kernels/cuda/cudnn_graphs.h"
#include "kernels/cuda/linear_tiles.h"
#include "kernels/cuda/patch_conv2d.h"
#include "kernels/elementwise.h"
#include "kernels/linear.h"
#include "tests/support/op_run.h"
#include "tests/support/random.h"

namespace lockstep::kernels {
namespace {

using testing::random_values;
using testing::to_doubles;
using testing::to_tensor;
using Values = std::vector<double>;

constexpr double kF32 = 1e-4;
constexpr double kBf16 = 1e-2;

double relative_distance(const Values& got, const Values& expected) {
  EXPECT_EQ(got.size(), expected.size());
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(got[i] - expected[i], 2);
    size += std::pow(expected[i], 2);
  }
  return difference == 0 ? 0 : std::sqrt(difference / size);  // NaN where there is one; of zeros nothing may be far
}

// A convolution of drawn values, in the type of the GPU and as the CPU knows it.
struct Drawn {
  Shape x_shape, weight_shape, y_shape;
  Conv2dParams params;
  Values x, weight, bias, dy;

  Drawn(const Shape& images, const Shape& filters, const Conv2dParams& geometry, DType dtype)
      : x_shape(images),
        weight_shape(filters),
        y_shape{images[0], (images[1] + 2 * geometry.padding - filters[1]) / geometry.stride + 1,
                (images[2] + 2 * geometry.padding - filters[2]) / geometry.stride + 1, filters[0]},
        params(geometry) {
    std::uint64_t stream = 0;
    const auto draw = [&](const Shape& shape) {
      return to_doubles(to_tensor(random_values(shape.numel(), -1, 1, stream++), shape, dtype));
    };
    x = draw(x_shape);
    weight = draw(weight_shape);
    bias = draw({weight_shape[0]});
    dy = draw(y_shape);
  }

  Values forward(bool with_bias, bool relu) const {
    const Tensor y = Tensor::empty(y_shape, DType::f64);
    cpu::conv2d_forward(context().exec(), to_tensor(x, x_shape, DType::f64),
                        to_tensor(weight, weight_shape, DType::f64),
                        with_bias ? ConstView(to_tensor(bias, {weight_shape[0]}, DType::f64)) : ConstView{}, params,
                        relu ? Activation::relu : Activation::none, y);
    return to_doubles(y);
  }

  struct Gradients {
    Values x, weight, bias;
  };
  Gradients backward(bool rectified) const {
    bool unrectified = false;
    const Tensor dx = Tensor::empty(x_shape, DType::f64), dweight = Tensor::empty(weight_shape, DType::f64);
    const Tensor dbias = Tensor::empty({weight_shape[0]}, DType::f64);
    cpu::conv2d_backward(context().exec(), to_tensor(dy, y_shape, DType::f64), to_tensor(x, x_shape, DType::f64),
                         to_tensor(weight, weight_shape, DType::f64), params,
                         {dx, false, rectified ? &unrectified : nullptr}, {dweight, false}, {dbias, false});
    return {to_doubles(dx), to_doubles(dweight), to_doubles(dbias)};
  }
};

class GpuConv2d : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const GpuCount gpus = count_gpus(); gpus.count == 0) GTEST_SKIP() << gpus.why_none;
    gpu_.emplace(ContextOptions{.device = DeviceType::cuda});
  }

  // A tensor of NaN, so that what is not written is seen.
  static Tensor unwritten(const Shape& shape, DType dtype) {
    return to_tensor(Values(static_cast<std::size_t>(shape.numel()), std::nan("")), shape, dtype);
  }

  std::optional<Context> gpu_;
};

TEST_F(GpuConv2d, EveryPlanOfCudnnAgrees) {
  using cuda::ConvEpilogue;
  using cuda::ConvPass;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const Drawn drawn({4, 14, 14, 64}, {32, 3, 3, 64}, {.padding = 1}, dtype);
    const Drawn::Gradients plain = drawn.backward(false);
    struct Case {
      ConvPass pass;
      ConvEpilogue epilogue;
      const Values *a, *b, *operand;
      Shape a_shape, b_shape, operand_shape, out_shape;
      Values expected;
    };
    const Shape outputs = {drawn.weight_shape[0]};
    const std::vector<Case> cases = {
        {ConvPass::forward, ConvEpilogue::none, &drawn.x, &drawn.weight, &drawn.bias, drawn.x_shape, drawn.weight_shape,
         outputs, drawn.y_shape, drawn.forward(false, false)},
        {ConvPass::forward, ConvEpilogue::bias, &drawn.x, &drawn.weight, &drawn.bias, drawn.x_shape, drawn.weight_shape,
         outputs, drawn.y_shape, drawn.forward(true, false)},
        {ConvPass::forward, ConvEpilogue::bias_relu, &drawn.x, &drawn.weight, &drawn.bias, drawn.x_shape,
         drawn.weight_shape, outputs, drawn.y_shape, drawn.forward(true, true)},
        {ConvPass::data_gradient, ConvEpilogue::none, &drawn.dy, &drawn.weight, &drawn.x, drawn.y_shape,
         drawn.weight_shape, drawn.x_shape, drawn.x_shape, plain.x},
        {ConvPass::data_gradient, ConvEpilogue::rectify, &drawn.dy, &drawn.weight, &drawn.x, drawn.y_shape,
         drawn.weight_shape, drawn.x_shape, drawn.x_shape, drawn.backward(true).x},
        {ConvPass::weight_gradient, ConvEpilogue::none, &drawn.dy, &drawn.x, &drawn.x, drawn.y_shape, drawn.x_shape,
         drawn.x_shape, drawn.weight_shape, plain.weight}};
    for (const Case& c : cases) {
      const ContextScope scope(*gpu_);
      const Tensor a = to_tensor(*c.a, c.a_shape, dtype), b = to_tensor(*c.b, c.b_shape, dtype);
      const Tensor operand = to_tensor(*c.operand, c.operand_shape, dtype);
      const cuda::ConvProblem problem = {.pass = c.pass,
                                         .images = drawn.x_shape[0],
                                         .height = drawn.x_shape[1],
                                         .width = drawn.x_shape[2],
                                         .channels = drawn.x_shape[3],
                                         .outputs = drawn.weight_shape[0],
                                         .kernel_rows = drawn.weight_shape[1],
                                         .kernel_columns = drawn.weight_shape[2],
                                         .out_height = drawn.y_shape[1],
                                         .out_width = drawn.y_shape[2],
                                         .stride = 1,
                                         .padding = 1,
                                         .dtype = dtype,
                                         .epilogue = c.epilogue,
                                         .alignment = 16,
                                         .allow_tf32 = false,
                                         .deterministic = false,
                                         .device = 0};
      cuda::ConvGraph graph(problem);
      int ran = 0;
      for (int plan = 0; plan < graph.plans(); ++plan) {
        const Tensor out = unwritten(c.out_shape, dtype);
        try {
          const ExecContext& exec = context().exec();
          void* const workspace = exec.workspace->reserve(graph.workspace_bytes(plan));
          graph.run(plan, exec.stream, a.view().data, b.view().data, operand.view().data, out.view().data, workspace);
        } catch (const std::runtime_error&) {
          continue;  // a plan that cannot be built is never chosen
        }
        ++ran;
        EXPECT_LT(relative_distance(to_doubles(out), c.expected), dtype == DType::bf16 ? kBf16 : kF32)
            << problem.text() << ", plan " << graph.name(plan);
      }
      if (c.epilogue == ConvEpilogue::none) {
        EXPECT_GT(ran, 0) << problem.text();
      }
    }
  }
}

TEST_F(GpuConv2d, PatchesAgree) {
  struct Sizes {
    Shape x, weight;
    Conv2dParams params;
  };
  int fitted = 0;
  for (const auto& [x, weight, params] :
       {Sizes{{3, 28, 28, 1}, {6, 5, 5, 1}, {.padding = 2}}, Sizes{{3, 14, 14, 6}, {16, 5, 5, 6}, {}},
        Sizes{{2, 32, 224, 3}, {64, 3, 3, 3}, {.padding = 1}}, Sizes{{2, 9, 8, 3}, {17, 3, 3, 3}, {.stride = 2}},
        Sizes{{2, 12, 12, 16}, {6, 5, 5, 16}, {.padding = 4}}, Sizes{{600, 28, 28, 1}, {6, 5, 5, 1}, {.padding = 2}}}) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const bool f32 = dtype == DType::f32;
      const double tolerance = f32 ? kF32 : kBf16;
      const std::string name = x.to_string() + " " + weight.to_string() + " " + dtype_name(dtype);
      const Drawn drawn(x, weight, params, dtype);
      const Values forward = drawn.forward(true, true);
      const Drawn::Gradients gradients = drawn.backward(false);
      const ContextScope scope(*gpu_);
      const ExecContext& exec = context().exec();
      const Tensor images = to_tensor(drawn.x, x, dtype), filters = to_tensor(drawn.weight, weight, dtype);
      const Tensor bias = to_tensor(drawn.bias, {weight[0]}, dtype), dy = to_tensor(drawn.dy, drawn.y_shape, dtype);
      const cuda::PatchConv2d& by = f32 ? cuda::kPatchLoops : cuda::kPatchTiles;
      if (by.forward_fits(x, weight, drawn.y_shape, params)) {
        const Tensor y = unwritten(drawn.y_shape, dtype);
        by.forward(exec, images, filters, bias, params, true, y);
        EXPECT_LT(relative_distance(to_doubles(y), forward), tolerance) << "forward " << name;
        ++fitted;
      }
      if (by.data_gradient_fits(x, weight, drawn.y_shape, params)) {
        const Tensor dx = unwritten(x, dtype);
        by.data_gradient(exec, dy, filters, params, {dx, false});
        EXPECT_LT(relative_distance(to_doubles(dx), gradients.x), tolerance) << "data gradient " << name;
        ++fitted;
      }
      for (const cuda::PatchConv2d* weights_by : {&cuda::kPatchTiles, &cuda::kPatchLoops}) {
        if (f32 && weights_by == &cuda::kPatchTiles) continue;
        if (!weights_by->weight_gradient_fits(x, weight, drawn.y_shape, params)) continue;
        const Tensor dweight = unwritten(weight, DType::f32), dbias = unwritten({weight[0]}, DType::f32);
        weights_by->weight_gradient(exec, dy, images, params, {dweight, false}, {dbias, false});
        EXPECT_LT(relative_distance(to_doubles(dweight), gradients.weight), tolerance) << "weight gradient " << name;
        EXPECT_LT(relative_distance(to_doubles(dbias), gradients.bias), tolerance) << "bias gradient " << name;
        ++fitted;
      }
    }
  }
  EXPECT_GE(fitted, 23);
}

class GpuLinear : public GpuConv2d {};

TEST_F(GpuLinear, TilesAgree) {
  for (const auto& [rows, inputs, outputs] : {std::array<std::int64_t, 3>{64, 784, 512},
                                              {64, 512, 10},
                                              {3, 17, 5},
                                              {33, 1300, 12},
                                              {150, 36, 20},
                                              {5, 2500, 40},
                                              {1, 1, 1}}) {
    const Shape x_shape = {rows, inputs}, weight_shape = {outputs, inputs}, y_shape = {rows, outputs};
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const double tolerance = dtype == DType::f32 ? kF32 : kBf16;
      std::uint64_t stream = 0;
      const auto draw = [&](const Shape& shape) {
        return to_doubles(to_tensor(random_values(shape.numel(), -1, 1, stream++), shape, dtype));
      };
      const Values x = draw(x_shape), weight = draw(weight_shape), bias = draw({outputs}), dy = draw(y_shape);
      struct Result {
        Values y, dx, dweight, dbias;
      };
      const auto run = [&](DType type, DType gradients, bool accumulate, auto&& forward, auto&& backward) {
        const auto target = [&](const Shape& shape) {
          if (!accumulate) return unwritten(shape, gradients);
          return to_tensor(Values(static_cast<std::size_t>(shape.numel()), 1.0), shape, gradients);
        };
        const Tensor y = unwritten(y_shape, type), dx = target(x_shape);
        const Tensor dweight = target(weight_shape), dbias = target({outputs});
        bool unrectified = false;
        const Tensor images = to_tensor(x, x_shape, type), filters = to_tensor(weight, weight_shape, type);
        forward(images, filters, to_tensor(bias, {outputs}, type), y);
        backward(to_tensor(dy, y_shape, type), images, filters, GradView{dx, accumulate, &unrectified},
                 GradView{dweight, accumulate}, GradView{dbias, accumulate});
        EXPECT_FALSE(unrectified);
        return Result{to_doubles(y), to_doubles(dx), to_doubles(dweight), to_doubles(dbias)};
      };
      for (const bool accumulate : {false, true}) {
        const Result expected = run(
            DType::f64, DType::f64, accumulate,
            [](const Tensor& i, const Tensor& f, const Tensor& b, const Tensor& y) {
              cpu::linear_forward(context().exec(), i, f, b, Activation::relu, y);
            },
            [](auto&&... a) { cpu::linear_backward(context().exec(), a...); });
        const ContextScope scope(*gpu_);
        for (const cuda::Tiling tiling : cuda::linear_tilings(to_tensor(x, x_shape, dtype), weight_shape)) {
          for (const DType gradients : {DType::f32, dtype}) {
            const Result got = run(
                dtype, gradients, accumulate,
                [&](const Tensor& i, const Tensor& f, const Tensor& b, const Tensor& y) {
                  cuda::linear_tiles_forward(context().exec(), i, f, b, true, y, tiling);
                },
                [&](auto&&... a) { cuda::linear_tiles_backward(context().exec(), a..., tiling); });
            const std::string name = x_shape.to_string() + " " + std::to_string(outputs) + " " + dtype_name(dtype) +
                                     " to " + dtype_name(gradients) + (accumulate ? " added " : " ") +
                                     cuda::tiling_name(tiling);
            EXPECT_LT(relative_distance(got.y, expected.y), tolerance) << name;
            EXPECT_LT(relative_distance(got.dx, expected.dx), tolerance) << name;
            EXPECT_LT(relative_distance(got.dweight, expected.dweight), tolerance) << name;
            EXPECT_LT(relative_distance(got.dbias, expected.dbias), tolerance) << name;
          }
        }
      }
    }
  }
}

// The plan phase would pass over one that cannot, and no other test would tell.
TEST_F(GpuLinear, EveryTilingCanBeCaptured) {
  const Shape x_shape = {64, 784}, weight_shape = {512, 784}, y_shape = {64, 512};
  const auto drawn = [](const Shape& shape, std::uint64_t stream) {
    return random_values(shape.numel(), -1, 1, stream);
  };
  const ContextScope scope(*gpu_);
  const Tensor x = to_tensor(drawn(x_shape, 0), x_shape, DType::f32);
  const Tensor weight = to_tensor(drawn(weight_shape, 1), weight_shape, DType::f32);
  for (const cuda::Tiling tiling : cuda::linear_tilings(x, weight_shape)) {
    const Tensor y = unwritten(y_shape, DType::f32), dx = unwritten(x_shape, DType::f32);
    const Tensor dweight = unwritten(weight_shape, DType::f32);
    const auto both = [&] {
      cuda::linear_tiles_forward(context().exec(), x, weight, {}, false, y, tiling);
      cuda::linear_tiles_backward(context().exec(), y, x, weight, {dx, false}, {dweight, false}, {}, tiling);
    };
    both();
    const Values once = to_doubles(dweight);
    CudaGraph graph;
    graph.capture([&] {
      both();
      both();
    });
    graph.launch();
    EXPECT_EQ(to_doubles(dweight), once) << cuda::tiling_name(tiling);
  }
}

// Kernels that are set up while the one before runs must still see all that it wrote.
TEST_F(GpuLinear, ChainsOfKernelsReadWhatWasWritten) {
  constexpr std::int64_t kSize = 1 << 20;
  constexpr int kLinks = 200;
  for (const bool programmatic : {true, false}) {
    Context gpu({.device = DeviceType::cuda, .programmatic_launch = programmatic});
    const ContextScope scope(gpu);
    const Tensor a = to_tensor(Values(kSize, 0.0), {kSize}, DType::f32), b = Tensor::empty({kSize}, DType::f32);
    const Tensor one = to_tensor(Values(kSize, 1.0), {kSize}, DType::f32);
    const auto chain = [&] {
      for (int i = 0; i < kLinks; ++i) {
        cuda::add(context().exec(), a, one, b);
        cuda::add(context().exec(), b, one, a);
      }
    };
    chain();
    CudaGraph graph;
    graph.capture(chain);
    graph.launch();
    for (const double value : to_doubles(a)) ASSERT_EQ(value, 4.0 * kLinks);
  }
}

}  // namespace
}  // namespace lockstep::kernels
