// Times the kernels of VGG-16, the MLP and LeNet-5 on one GPU, each alone: time, rate, the algorithm that the plan
// phase chose, and what the others took.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/cuda_graph.h"
#include "framework/core/device_value.h"
#include "framework/core/tensor.h"
#include "kernels/conv2d.h"
#include "kernels/cuda/plan.h"
#include "kernels/linear.h"
#include "kernels/optimizer.h"
#include "kernels/pooling.h"
#include "kernels/random.h"
#include "kernels/softmax_cross_entropy.h"

using namespace lockstep;
using namespace lockstep::kernels;

namespace {

constexpr int kRepeats = 10;      // in a graph
constexpr int kMeasurements = 5;  // of which the median counts

DType dtype = DType::bf16;

Tensor noise(const Shape& shape, DType type = dtype) {
  const Tensor tensor = Tensor::empty(shape, type);
  cuda::fill_normal(context().exec(), tensor, 0, 0.1, 1, context().next_random_stream());
  return tensor;
}

double milliseconds(const std::function<void(const ExecContext&)>& work) {
  work(context().exec());
  work(context().exec());
  CudaGraph graph;
  graph.capture([&] {
    for (int i = 0; i < kRepeats; ++i) work(context().exec());
  });
  std::vector<double> times;
  for (int i = 0; i <= kMeasurements; ++i) {
    context().synchronize();
    const auto begin = std::chrono::steady_clock::now();
    graph.launch();
    context().synchronize();
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
    if (i > 0) times.push_back(taken.count() / kRepeats);
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

// What a row is measured by.
enum class Rate : std::uint8_t { products, bytes };

void row(const std::string& name, Rate rate, double amount, const std::function<void(const ExecContext&)>& work) {
  const double ms = milliseconds(work);
  if (rate == Rate::products) {
    fmt::print("{:<58} {:9.4f} ms {:7.1f} TFLOP/s\n", name, ms, 2 * amount / ms / 1e9);
  } else {
    fmt::print("{:<58} {:9.4f} ms {:7.1f} GB/s\n", name, ms, amount / ms / 1e6);
  }
  std::fflush(stdout);
}

double bytes_of(std::initializer_list<Tensor> tensors) {
  double bytes = 0;
  for (const Tensor& tensor : tensors) bytes += static_cast<double>(tensor.view().bytes());
  return bytes;
}

struct Convolution {
  std::int64_t side, channels, outputs, kernel, padding;
  bool pooled;     // by 2, with the ReLU
  bool rectifies;  // x was made by a ReLU, and has a gradient
};

// A convolution as its model uses it, forward and backward, and the pooling behind it.
void convolution(std::int64_t images, const Convolution& c) {
  const Conv2dParams params = {.padding = c.padding};
  const std::int64_t out = c.side + 2 * c.padding - c.kernel + 1;
  const Tensor x = noise({images, c.side, c.side, c.channels}), dx = noise(x.shape());
  const Tensor weight = noise({c.outputs, c.kernel, c.kernel, c.channels}), bias = noise({c.outputs});
  const Tensor y = noise({images, out, out, c.outputs});
  const Tensor dweight = noise(weight.shape(), DType::f32), dbias = noise(bias.shape(), DType::f32);
  const double products = static_cast<double>(y.numel()) * static_cast<double>(weight.numel() / c.outputs);
  const std::string sizes = fmt::format("{}x{}x{}->{}", c.side, c.side, c.channels, c.outputs);
  row("conv forward" + std::string(c.pooled ? " " : " relu ") + sizes, Rate::products, products, [=](auto& exec) {
    cuda::conv2d_forward(exec, x, weight, c.pooled ? ConstView{} : ConstView(bias), params,
                         c.pooled ? Activation::none : Activation::relu, y);
  });
  bool unrectified = false;
  if (c.channels > 3) {
    row("conv data gradient " + sizes, Rate::products, products, [=, &unrectified](auto& exec) {
      cuda::conv2d_backward(exec, y, x, weight, params, {dx, false, c.rectifies ? &unrectified : nullptr}, {}, {});
    });
    if (unrectified) fmt::print("    (not rectified)\n");
  }
  row("conv weight gradient " + sizes, Rate::products, products, [=](auto& exec) {
    cuda::conv2d_backward(exec, y, x, weight, params, {}, {dweight, false},
                          c.pooled ? GradView{} : GradView{dbias, false});
  });
  if (!c.pooled) return;
  const Tensor pooled = noise({images, out / 2, out / 2, c.outputs});
  const Tensor winners = Tensor::empty(pooled.shape(), DType::u8);
  row("relu max pool forward " + sizes, Rate::bytes, bytes_of({y, pooled, winners}),
      [=](auto& exec) { cuda::relu_max_pool2d_forward(exec, y, bias, 2, pooled, winners); });
  row("relu max pool backward " + sizes, Rate::bytes, bytes_of({y, pooled, winners}), [=](auto& exec) {
    cuda::relu_max_pool2d_backward(exec, pooled, winners, 2, y, {dbias, false});
  });
}

void linear_layer(std::int64_t rows, std::int64_t inputs, std::int64_t outputs, bool relu, bool to_x) {
  const Tensor x = noise({rows, inputs}), weight = noise({outputs, inputs}), bias = noise({outputs});
  const Tensor y = noise({rows, outputs}), dx = noise(x.shape());
  const Tensor dweight = noise(weight.shape(), DType::f32), dbias = noise(bias.shape(), DType::f32);
  const std::string sizes = fmt::format("{}x{}->{}", rows, inputs, outputs);
  row(std::string("linear forward") + (relu ? " relu " : " ") + sizes, Rate::bytes, bytes_of({x, weight, y}),
      [=](auto& exec) { cuda::linear_forward(exec, x, weight, bias, relu ? Activation::relu : Activation::none, y); });
  bool unrectified = false;
  row("linear backward " + sizes, Rate::bytes, bytes_of({weight, dweight, x, y}), [=, &unrectified](auto& exec) {
    cuda::linear_backward(exec, y, x, weight, to_x ? GradView{dx, false, &unrectified} : GradView{}, {dweight, false},
                          {dbias, false});
  });
}

void loss(std::int64_t rows, std::int64_t classes) {
  const Tensor logits = noise({rows, classes}), lse = noise({rows}, DType::f32), value = noise({}, DType::f32);
  const Tensor labels = Tensor::zeros({rows}, DType::i32), gradient = noise({rows, classes});
  const std::string sizes = fmt::format("{}x{}", rows, classes);
  row("softmax cross-entropy forward " + sizes, Rate::bytes, bytes_of({logits}),
      [=](auto& exec) { cuda::softmax_cross_entropy_forward(exec, logits, labels, 0.0, lse, value); });
  row("softmax cross-entropy backward " + sizes, Rate::bytes, 2 * bytes_of({logits}),
      [=](auto& exec) { cuda::softmax_cross_entropy_backward(exec, value, logits, labels, lse, 0.0, gradient); });
}

void sgd(std::int64_t count) {
  const std::int64_t n = (count + kDecayChunk - 1) / kDecayChunk * kDecayChunk;
  const Tensor param = noise({n}, DType::f32), momentum = noise({n}, DType::f32), grad = noise({n}, DType::f32);
  const Tensor copy = noise({n}, DType::bf16), decay = Tensor::zeros({n / kDecayChunk}, DType::u8);
  DeviceValue<StepScalars> scalars(DeviceType::cuda);
  scalars.store(context().exec(), {.learning_rate = 0.01, .step = 1});
  const UpdateRange range = {.param = param,
                             .grad = grad,
                             .decay = decay,
                             .scalars = scalars.get(),
                             .compute_copy = dtype == DType::bf16 ? copy.view() : View{}};
  const double bytes = 2 * bytes_of({param, momentum}) + bytes_of({grad}) +
                       static_cast<double>(range.compute_copy.data ? copy.view().bytes() : 0);
  row(fmt::format("sgd {} parameters", count), Rate::bytes, bytes,
      [=](auto& exec) { cuda::sgd_step(exec, range, momentum, {.momentum = 0.9}); });
}

void vgg16(std::int64_t images) {
  fmt::print("\nVGG-16, {} images, {}\n", images, dtype_name(dtype));
  for (const Convolution& c : {Convolution{224, 3, 64, 3, 1, false, false},
                               {224, 64, 64, 3, 1, true, true},
                               {112, 64, 128, 3, 1, false, false},
                               {112, 128, 128, 3, 1, true, true},
                               {56, 128, 256, 3, 1, false, false},
                               {56, 256, 256, 3, 1, false, true},
                               {56, 256, 256, 3, 1, true, true},
                               {28, 256, 512, 3, 1, false, false},
                               {28, 512, 512, 3, 1, false, true},
                               {28, 512, 512, 3, 1, true, true},
                               {14, 512, 512, 3, 1, false, true},
                               {14, 512, 512, 3, 1, true, true}}) {
    convolution(images, c);
  }
  linear_layer(images, 25088, 4096, true, true);
  linear_layer(images, 4096, 4096, true, true);
  linear_layer(images, 4096, 1000, false, true);
  loss(images, 1000);
}

void small_models(std::int64_t batch) {
  fmt::print("\nMLP and LeNet-5, {} samples, {}\n", batch, dtype_name(dtype));
  linear_layer(batch, 784, 512, true, false);
  linear_layer(batch, 512, 512, true, true);
  linear_layer(batch, 512, 10, false, true);
  loss(batch, 10);
  sgd(669706);
  convolution(batch, {28, 1, 6, 5, 2, true, false});
  convolution(batch, {14, 6, 16, 5, 0, true, false});
  linear_layer(batch, 400, 120, true, true);
  linear_layer(batch, 120, 84, true, true);
  linear_layer(batch, 84, 10, false, true);
}

void print_choices() {
  fmt::print("\nChoices of the plan phase, ms\n");
  for (const cuda::PlanTimes& plan : cuda::plan_times()) {
    fmt::print("{}\n", plan.problem);
    for (std::size_t i = 0; i < plan.candidates.size(); ++i) {
      const auto& [name, ms] = plan.candidates[i];
      fmt::print("  {} {:<60} {}\n", static_cast<int>(i) == plan.choice ? '*' : ' ', name,
                 std::isinf(ms) ? "-" : fmt::format("{:.4f}", ms));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::int64_t> images = {32, 128};
  CLI::App app("Times the kernels of VGG-16 (bf16), the MLP and LeNet-5 (f32 and bf16) on one GPU.");
  app.add_option("--images", images, "Batch sizes of VGG-16; none: leave it out")->expected(0, 8);
  CLI11_PARSE(app, argc, argv);
  try {
    Context gpu({.device = DeviceType::cuda, .dtype = dtype});
    const ContextScope scope(gpu);
    for (const DType type : {DType::f32, DType::bf16}) {
      dtype = type;
      small_models(64);
    }
    for (const std::int64_t count : images) vgg16(count);
    if (!images.empty()) sgd(138357544);
    print_choices();
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_ops_benchmark: {}\n", error.what());
    return 1;
  }
}
