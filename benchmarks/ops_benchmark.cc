// Times the heavy CPU kernels at the shapes of the MLP and LeNet-5, 64 samples, f32, with 1 and 2 threads.
// pytorch/ops.py times the same in PyTorch, in turn with this program, and prints the ratios.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <functional>
#include <string>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/tensor.h"
#include "kernels/conv2d.h"
#include "kernels/linear.h"
#include "kernels/pooling.h"
#include "kernels/random.h"

using namespace lockstep;
using kernels::Conv2dParams;
using kernels::Pool2dParams;

namespace {

constexpr std::int64_t kBatch = 64;
using Kernel = std::function<void(const ExecContext&)>;

Tensor noise(const Shape& shape) {
  const Tensor tensor = Tensor::empty(shape, DType::f32);
  kernels::cpu::fill_normal(context().exec(), tensor, 0, 1, 0, 0);
  return tensor;
}

void add(const std::string& name, const Kernel& kernel) {
  for (const int threads : {1, 2}) {
    benchmark::RegisterBenchmark(fmt::format("{}/{}", name, threads).c_str(), [=](benchmark::State& state) {
      const Context with_threads(DeviceType::cpu, threads);
      for (auto _ : state) kernel(with_threads.exec());
    })->UseRealTime();
  }
}

void add_linear(std::int64_t inputs, std::int64_t outputs) {
  const Tensor x = noise({kBatch, inputs}), weight = noise({outputs, inputs}), bias = noise({outputs});
  const Tensor y = noise({kBatch, outputs}), dx = noise(x.shape()), dweight = noise(weight.shape());
  const std::string sizes = fmt::format("{}x{}", inputs, outputs);
  add("linear_forward/" + sizes,
      [=](auto& exec) { kernels::cpu::linear_forward(exec, x, weight, bias, kernels::Activation::none, y); });
  add("linear_backward_input/" + sizes, [=](auto& exec) {
    kernels::cpu::linear_backward(exec, y, x, weight, {dx, false}, {}, {});
  });
  add("linear_backward_weight/" + sizes, [=](auto& exec) {
    kernels::cpu::linear_backward(exec, y, x, weight, {}, {dweight, false}, {bias, false});
  });
}

void add_conv2d(std::int64_t size, std::int64_t channels, std::int64_t outputs, std::int64_t padding) {
  const Conv2dParams params{.padding = padding};
  const std::int64_t out = size + 2 * padding - 4;
  const Tensor x = noise({kBatch, size, size, channels}), weight = noise({outputs, 5, 5, channels});
  const Tensor bias = noise({outputs}), y = noise({kBatch, out, out, outputs});
  const Tensor dx = noise(x.shape()), dweight = noise(weight.shape());
  const std::string sizes = fmt::format("{}x{}x{}", size, channels, outputs);
  add("conv2d_forward/" + sizes,
      [=](auto& exec) { kernels::cpu::conv2d_forward(exec, x, weight, bias, params, kernels::Activation::none, y); });
  add("conv2d_backward_input/" + sizes, [=](auto& exec) {
    kernels::cpu::conv2d_backward(exec, y, x, weight, params, {dx, false}, {}, {});
  });
  add("conv2d_backward_weight/" + sizes, [=](auto& exec) {
    kernels::cpu::conv2d_backward(exec, y, x, weight, params, {}, {dweight, false}, {bias, false});
  });
}

void add_max_pool2d(std::int64_t size, std::int64_t channels) {
  const Pool2dParams params{.kernel = 2, .stride = 2, .padding = 0};
  const Tensor x = noise({kBatch, size, size, channels}), dx = noise(x.shape());
  const Tensor y = noise({kBatch, size / 2, size / 2, channels});
  const std::string sizes = fmt::format("{}x{}", size, channels);
  add("max_pool2d_forward/" + sizes, [=](auto& exec) { kernels::cpu::max_pool2d_forward(exec, x, params, y); });
  add("max_pool2d_backward/" + sizes, [=](auto& exec) {
    kernels::cpu::max_pool2d_backward(exec, y, x, params, {dx, false});
  });
}

}  // namespace

int main(int argc, char** argv) {
  for (const auto& [inputs, outputs] : {std::pair{784, 512}, {512, 512}, {512, 10}, {400, 120}, {120, 84}, {84, 10}}) {
    add_linear(inputs, outputs);
  }
  add_conv2d(28, 1, 6, 2);
  add_conv2d(14, 6, 16, 0);
  add_max_pool2d(28, 6);
  add_max_pool2d(10, 16);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
