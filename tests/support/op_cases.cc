#include "tests/support/op_cases.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "framework/ops/activation.h"
#include "framework/ops/conv2d.h"
#include "framework/ops/dropout.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/embedding.h"
#include "framework/ops/layer_norm.h"
#include "framework/ops/linear.h"
#include "framework/ops/pooling.h"
#include "framework/ops/reduction.h"
#include "framework/ops/softmax_cross_entropy.h"

namespace lockstep::testing {
namespace {

using Rows = std::vector<OpCase>;

constexpr std::int64_t kSizes[] = {1, 3, 17, 129, 1000};
constexpr double kGap = 2e-3;       // from kinks
constexpr double kInnerGap = 1e-2;  // from kinks within, which the sums of many arguments come near

// "op_3x17"
std::string named(const std::string& op, const Shape& shape) {
  std::string name = op + "_";
  for (int i = 0; i < shape.rank(); ++i) name += (i > 0 ? "x" : "") + std::to_string(shape[i]);
  return name;
}

// A tensor that is not a parameter, with the values of x: its gradient is the tape's own.
Tensor activation(const Tensor& x) { return scale(x, 1.0); }

// Whether no element lies near zero, where ReLU has its kink.
bool clear_of_zero(const Tensor& x) {
  const std::vector<double> values = x.to_host<double>();
  return std::ranges::none_of(values, [](double value) { return std::abs(value) < kInnerGap; });
}

// Whether the largest two elements of each window differ by more than bf16 rounds, and the largest is clear of zero. x
// (N, H, W, C); windows lie side by side.
bool clear_maxima(const Tensor& x, std::int64_t window) {
  const std::vector<double> values = x.to_host<double>();
  const std::int64_t width = x.dim(2), channels = x.dim(3);
  for (std::int64_t line = 0; line < x.dim(0) * x.dim(1); ++line) {
    const std::int64_t row = line % x.dim(1);
    if (row % window != 0 || row + window > x.dim(1)) continue;
    for (std::int64_t column = 0; column + window <= width; column += window) {
      for (std::int64_t c = 0; c < channels; ++c) {
        double first = -1e9, second = -1e9;
        for (std::int64_t k = 0; k < window * window; ++k) {
          const double value =
              values[static_cast<std::size_t>(((line + k / window) * width + column + k % window) * channels + c)];
          second = std::max(second, std::min(value, first));
          first = std::max(first, value);
        }
        if (std::abs(first) < kInnerGap || first - second < std::max(kInnerGap, std::abs(first) / 64)) return false;
      }
    }
  }
  return true;
}

void add_elementwise(Rows& rows) {
  for (const std::int64_t n : kSizes) {
    rows.push_back({.name = named("add", {n}), .inputs = {{{n}}, {{n}}}, .indices = {}, .forward = [](auto& a) {
                      return add(a.inputs[0], a.inputs[1]);
                    }});
    rows.push_back({.name = named("multiply", {n}), .inputs = {{{n}}, {{n}}}, .indices = {}, .forward = [](auto& a) {
                      return multiply(a.inputs[0], a.inputs[1]);
                    }});
    rows.push_back({.name = named("scale", {n}), .inputs = {{{n}}}, .indices = {}, .forward = [](auto& a) {
                      return scale(a.inputs[0], -1.75);
                    }});
  }
}

void add_activations(Rows& rows) {
  for (const std::int64_t n : kSizes) {
    rows.push_back({.name = named("relu", {n}),
                    .inputs = {{.shape = {n}, .low = -2, .high = 2, .away_from_zero = kGap}},
                    .indices = {},
                    .forward = [](auto& a) { return relu(a.inputs[0]); }});
    rows.push_back({.name = named("gelu_erf", {n}),
                    .inputs = {{.shape = {n}, .low = -6, .high = 6}},
                    .indices = {},
                    .forward = [](auto& a) { return gelu_erf(a.inputs[0]); },
                    .f32_tolerance = 5e-5});  // 1 + erf(x) cancels where x is negative
    rows.push_back({.name = named("gelu_tanh", {n}),
                    .inputs = {{.shape = {n}, .low = -6, .high = 6}},
                    .indices = {},
                    .forward = [](auto& a) { return gelu_tanh(a.inputs[0]); }});
  }
}

void add_reductions(Rows& rows) {
  for (const Shape& shape : {Shape{1}, Shape{3}, Shape{17, 3}, Shape{129, 17}, Shape{1000, 3}}) {
    rows.push_back({.name = named("sum", shape),
                    .inputs = {{.shape = shape, .low = 0, .high = 2}},
                    .indices = {},
                    .forward = [](auto& a) { return sum(a.inputs[0]); }});
    rows.push_back({.name = named("mean", shape),
                    .inputs = {{.shape = shape, .low = 0, .high = 2}},
                    .indices = {},
                    .forward = [](auto& a) { return mean(a.inputs[0]); }});
  }
}

void add_softmax_cross_entropy(Rows& rows) {
  for (const Shape& shape : {Shape{1, 1}, Shape{1, 3}, Shape{3, 17}, Shape{17, 10}, Shape{129, 3}, Shape{17, 129},
                             Shape{3, 1000}, Shape{0, 10}}) {
    for (const double smoothing : {0.0, 0.1}) {
      rows.push_back({.name = named(smoothing == 0 ? "softmax_cross_entropy" : "softmax_cross_entropy_smoothed", shape),
                      .inputs = {{.shape = shape, .low = -4, .high = 4}},
                      .indices = {{.shape = {shape[0]}, .limit = static_cast<std::int32_t>(shape[1])}},
                      .forward = [smoothing](auto& a) {
                        return softmax_cross_entropy(activation(a.inputs[0]), a.indices[0], smoothing);
                      }});
    }
  }
  // ReLU keeps its output for backward, so that the loss must not write over it.
  rows.push_back({.name = "softmax_cross_entropy_of_relu_17x10",
                  .inputs = {{.shape = {17, 10}, .low = -4, .high = 4, .away_from_zero = kGap}},
                  .indices = {{.shape = {17}, .limit = 10}},
                  .forward = [](auto& a) { return softmax_cross_entropy(relu(a.inputs[0]), a.indices[0]); }});
}

void add_dropout(Rows& rows) {
  for (const Shape& shape :
       {Shape{1}, Shape{17}, Shape{3, 17}, Shape{17, 129}, Shape{3, 1000}, Shape{3, 5, 7, 2}, Shape{0, 3}}) {
    rows.push_back({.name = named("dropout", shape), .inputs = {{shape}}, .indices = {}, .forward = [](auto& a) {
                      return dropout(a.inputs[0], 0.3, 7);
                    }});
  }
  rows.push_back({.name = "dropout_of_nothing_17", .inputs = {{{17}}}, .indices = {}, .forward = [](auto& a) {
                    return dropout(a.inputs[0], 0.0, 7);
                  }});
}

void add_embedding(Rows& rows) {
  struct Sizes {
    Shape table, indices;
  };
  for (const auto& [table, indices] : {Sizes{{1, 1}, {3}}, Sizes{{3, 17}, {1}}, Sizes{{17, 3}, {129}},
                                       Sizes{{17, 129}, {3, 5}}, Sizes{{1000, 3}, {17}}, Sizes{{17, 3}, {0}}}) {
    rows.push_back({.name = named(named("embedding", table), indices),
                    .inputs = {{table}},
                    .indices = {{.shape = indices, .limit = static_cast<std::int32_t>(table[0])}},
                    .forward = [](auto& a) { return embedding(a.inputs[0], a.indices[0]); }});
  }
}

void add_layer_norm(Rows& rows) {
  for (const Shape& shape : {Shape{3, 1}, Shape{1, 3}, Shape{3, 17}, Shape{17, 129}, Shape{129, 3}, Shape{3, 1000},
                             Shape{1000, 17}, Shape{3, 5, 17}, Shape{0, 17}}) {
    const Shape channels = {shape[-1]};
    rows.push_back({.name = named("layer_norm", shape),
                    .inputs = {{.shape = shape, .low = -3, .high = 3}, {channels}, {channels}},
                    .indices = {},
                    // A large eps keeps rows of few channels, which may be nearly constant, well conditioned.
                    .forward = [](auto& a) { return layer_norm(a.inputs[0], a.inputs[1], a.inputs[2], 0.1); }});
  }
}

void add_linear(Rows& rows) {
  struct Sizes {
    Shape x;
    std::int64_t outputs;
  };
  for (const auto& [x, outputs] : {Sizes{{1, 1}, 1}, Sizes{{3, 17}, 129}, Sizes{{17, 3}, 1}, Sizes{{129, 17}, 3},
                                   Sizes{{1, 129}, 17}, Sizes{{3, 1000}, 17}, Sizes{{17, 3}, 1000},
                                   Sizes{{1000, 3}, 17}, Sizes{{3, 5, 7}, 17}, Sizes{{17}, 3}, Sizes{{0, 3}, 17}}) {
    const std::string sizes = named("", x) + "_" + std::to_string(outputs);
    rows.push_back({.name = "linear" + sizes,
                    .inputs = {{x}, {{outputs, x[-1]}}, {{outputs}}},
                    .indices = {},
                    .forward = [](auto& a) { return linear(a.inputs[0], a.inputs[1], a.inputs[2]); }});
    rows.push_back({.name = "linear_without_bias" + sizes,
                    .inputs = {{x}, {{outputs, x[-1]}}},
                    .indices = {},
                    .forward = [](auto& a) { return linear(a.inputs[0], a.inputs[1]); }});
  }
  // The gradient of x is added to while those of weight and bias may be written.
  for (const Shape& x : {Shape{3, 17}, Shape{129, 3}, Shape{16, 64}}) {
    rows.push_back({.name = named("residual_of_linear", x),
                    .inputs = {{x}, {{x[1], x[1]}}, {{x[1]}}},
                    .indices = {},
                    .forward = [](auto& a) {
                      const Tensor h = activation(a.inputs[0]);
                      return add(linear(h, a.inputs[1], a.inputs[2]), h);
                    }});
  }
}

// Ops that end in a ReLU, and those that read one and so may rectify its gradient.
void add_linear_relu(Rows& rows) {
  struct Sizes {
    Shape x;
    std::int64_t outputs;
  };
  for (const auto& [x, outputs] : {Sizes{{1, 1}, 1}, Sizes{{3, 17}, 129}, Sizes{{129, 17}, 3}, Sizes{{17, 3}, 17},
                                   Sizes{{3, 5, 7}, 17}, Sizes{{16, 64}, 24}, Sizes{{0, 3}, 17}}) {
    const std::vector<OpInput> inputs = {{x}, {{outputs, x[-1]}}, {{outputs}}};
    const auto suits = [](auto& a) { return clear_of_zero(linear(a.inputs[0], a.inputs[1], a.inputs[2])); };
    const auto push = [&](const std::string& name, const std::vector<OpInput>& more,
                          std::function<Tensor(const OpArguments&)> forward) {
      std::vector<OpInput> all = inputs;
      all.insert(all.end(), more.begin(), more.end());
      rows.push_back({.name = name + named("", x) + "_" + std::to_string(outputs),
                      .inputs = all,
                      .indices = {},
                      .forward = std::move(forward),
                      .bf16_roundings = 4,  // h, the gradients of its readers, their sum
                      .suits = suits});
    };
    const auto hidden = [](auto& a) { return linear(a.inputs[0], a.inputs[1], a.inputs[2], Activation::relu); };
    push("linear_relu", {}, hidden);
    push("linear_of_linear_relu", {{{5, outputs}}}, [=](auto& a) { return linear(hidden(a), a.inputs[3]); });
    push("linear_of_dropout_of_linear_relu", {{{5, outputs}}},
         [=](auto& a) { return linear(dropout(hidden(a), 0.3, 7), a.inputs[3]); });
    push("linear_of_relu_of_linear", {{{5, outputs}}},
         [](auto& a) { return linear(relu(linear(a.inputs[0], a.inputs[1], a.inputs[2])), a.inputs[3]); });
    // Of two readers of a ReLU's output one does not rectify its gradient. The second weight is not negative: where a
    // sum cancels, what bf16 rounded before it is all that is left.
    push("residual_of_linear_relu", {{{outputs, outputs}, 0.0, 1.0}}, [=](auto& a) {
      const Tensor h = hidden(a);
      return add(linear(h, a.inputs[3]), h);
    });
    push("two_linears_of_linear_relu", {{{5, outputs}}, {{5, outputs}}}, [=](auto& a) {
      const Tensor h = hidden(a);
      return add(linear(h, a.inputs[3]), linear(h, a.inputs[4]));
    });
  }
}

void add_conv2d_relu(Rows& rows) {
  struct Sizes {
    Shape x, weight;
    Conv2dParams params;
    std::int64_t window;
  };
  for (const auto& [x, weight, params, window] :
       {Sizes{{1, 1, 1, 1}, {1, 1, 1, 1}, {}, 1}, Sizes{{3, 6, 5, 1}, {6, 3, 3, 1}, {.padding = 1}, 2},
        Sizes{{1, 7, 7, 3}, {8, 5, 5, 3}, {.padding = 2}, 3}, Sizes{{2, 5, 4, 3}, {16, 3, 3, 3}, {.padding = 1}, 2},
        Sizes{{1, 8, 8, 16}, {8, 3, 3, 16}, {.padding = 1}, 2}, Sizes{{1, 7, 5, 6}, {3, 2, 2, 6}, {.stride = 2}, 2},
        Sizes{{0, 4, 4, 3}, {5, 3, 3, 3}, {.padding = 1}, 2}}) {
    const std::string sizes = named(named("", x), weight) + "_window" + std::to_string(window);
    const std::int64_t outputs = weight[0];
    const std::vector<OpInput> inputs = {{x}, {weight}, {{outputs}}};
    const OpInput next = {.shape = {3, 1, 1, outputs}};
    const auto sums = [p = params](auto& a) { return conv2d(a.inputs[0], a.inputs[1], a.inputs[2], p); };
    const auto hidden = [p = params](auto& a) {
      return conv2d(a.inputs[0], a.inputs[1], a.inputs[2], p, Activation::relu);
    };
    const auto clear_sums = [=](auto& a) { return clear_of_zero(sums(a)); };
    rows.push_back(
        {.name = "conv2d_relu" + sizes, .inputs = inputs, .indices = {}, .forward = hidden, .suits = clear_sums});
    rows.push_back({.name = "conv2d_of_conv2d_relu" + sizes,
                    .inputs = {inputs[0], inputs[1], inputs[2], next},
                    .indices = {},
                    .forward = [=](auto& a) { return conv2d(hidden(a), a.inputs[3], {}, {}); },
                    .suits = clear_sums});
    const auto clear_windows = [=, w = window](auto& a) { return clear_maxima(sums(a), w); };
    const Pool2dParams pool = {.kernel = window, .stride = window};
    rows.push_back({.name = "max_pool2d_of_conv2d_relu" + sizes,
                    .inputs = inputs,
                    .indices = {},
                    .forward = [=](auto& a) { return max_pool2d(hidden(a), pool); },
                    .suits = [=](auto& a) { return clear_sums(a) && clear_windows(a); }});
    rows.push_back(
        {.name = "conv2d_relu_max_pool2d" + sizes,
         .inputs = inputs,
         .indices = {},
         .forward = [p = params, w = window](
                        auto& a) { return conv2d_relu_max_pool2d(a.inputs[0], a.inputs[1], a.inputs[2], p, w); },
         .suits = clear_windows});
    rows.push_back({.name = "conv2d_of_conv2d_relu_max_pool2d_without_bias" + sizes,
                    .inputs = {inputs[0], inputs[1], next},
                    .indices = {},
                    .forward =
                        [p = params, w = window](auto& a) {
                          return conv2d(conv2d_relu_max_pool2d(a.inputs[0], a.inputs[1], {}, p, w), a.inputs[2], {},
                                        {});
                        },
                    .suits = [p = params, w = window](
                                 auto& a) { return clear_maxima(conv2d(a.inputs[0], a.inputs[1], {}, p), w); }});
  }
}

void add_conv2d(Rows& rows) {
  struct Sizes {
    Shape x, weight;
    Conv2dParams params;
  };
  for (const auto& [x, weight, params] :
       {Sizes{{1, 1, 1, 1}, {1, 1, 1, 1}, {}}, Sizes{{3, 7, 5, 1}, {6, 5, 5, 1}, {.padding = 2}},
        Sizes{{2, 9, 8, 6}, {16, 5, 5, 6}, {}}, Sizes{{1, 17, 3, 17}, {3, 3, 1, 17}, {.padding = 1}},
        Sizes{{3, 8, 9, 3}, {17, 3, 3, 3}, {.stride = 2, .padding = 1}},
        Sizes{{2, 7, 7, 3}, {5, 2, 2, 3}, {.stride = 3}}, Sizes{{1, 3, 3, 129}, {17, 3, 3, 129}, {.padding = 1}},
        Sizes{{1, 3, 3, 17}, {129, 1, 1, 17}, {}}, Sizes{{0, 5, 5, 3}, {3, 3, 3, 3}, {}}}) {
    const std::string sizes = named(named("", x), weight) + "_stride" + std::to_string(params.stride) + "_padding" +
                              std::to_string(params.padding);
    rows.push_back({.name = "conv2d" + sizes,
                    .inputs = {{x}, {weight}, {{weight[0]}}},
                    .indices = {},
                    .forward = [p = params](auto& a) { return conv2d(a.inputs[0], a.inputs[1], a.inputs[2], p); }});
  }
  rows.push_back({.name = "conv2d_without_bias",
                  .inputs = {{{3, 5, 5, 3}}, {{17, 3, 3, 3}}},
                  .indices = {},
                  .forward = [](auto& a) { return conv2d(a.inputs[0], a.inputs[1], {}, {}); }});
}

void add_pooling(Rows& rows) {
  struct Sizes {
    Shape x;
    Pool2dParams params;
  };
  for (const auto& [x, params] :
       {Sizes{{1, 1, 1, 1}, {1, 1, 0}}, Sizes{{3, 6, 4, 6}, {2, 2, 0}}, Sizes{{1, 7, 5, 17}, {2, 2, 0}},
        Sizes{{3, 7, 9, 3}, {3, 2, 1}}, Sizes{{1, 5, 5, 129}, {3, 1, 1}}, Sizes{{3, 8, 5, 1}, {2, 3, 1}},
        Sizes{{2, 6, 5, 16}, {2, 2, 0}}, Sizes{{1, 5, 6, 8}, {3, 2, 1}}, Sizes{{0, 4, 4, 3}, {2, 2, 0}}}) {
    const std::string sizes = named("", x) + "_kernel" + std::to_string(params.kernel) + "_stride" +
                              std::to_string(params.stride) + "_padding" + std::to_string(params.padding);
    rows.push_back({.name = "max_pool2d" + sizes,
                    .inputs = {{.shape = x, .distinct = true}},
                    .indices = {},
                    .forward = [p = params](auto& a) { return max_pool2d(a.inputs[0], p); }});
    rows.push_back({.name = "avg_pool2d" + sizes, .inputs = {{x}}, .indices = {}, .forward = [p = params](auto& a) {
                      return avg_pool2d(a.inputs[0], p);
                    }});
  }
  struct AdaptiveSizes {
    Shape x;
    std::int64_t height, width;
  };
  for (const auto& [x, height, width] :
       {AdaptiveSizes{{3, 8, 6, 17}, 4, 3}, AdaptiveSizes{{2, 10, 9, 3}, 7, 4}, AdaptiveSizes{{1, 1, 2, 129}, 7, 7},
        AdaptiveSizes{{1, 7, 7, 6}, 7, 7}, AdaptiveSizes{{0, 4, 4, 3}, 2, 2}}) {
    rows.push_back(
        {.name = named("adaptive_avg_pool2d", x) + "_to_" + std::to_string(height) + "x" + std::to_string(width),
         .inputs = {{x}},
         .indices = {},
         .forward = [h = height, w = width](auto& a) { return adaptive_avg_pool2d(a.inputs[0], h, w); }});
  }
}

// Tensors that are read more than once, share memory or gradients, or pass through several ops.
void add_compositions(Rows& rows) {
  for (const std::int64_t n : kSizes) {
    const OpInput x = {.shape = {3, n}, .low = -2, .high = 2};
    const auto push = [&](const std::string& name, std::function<Tensor(const OpArguments&)> forward) {
      rows.push_back({.name = named(name, x.shape), .inputs = {x}, .indices = {}, .forward = std::move(forward)});
    };
    push("x_plus_x", [](auto& a) {
      const Tensor h = activation(a.inputs[0]);
      return add(h, h);
    });
    push("x_plus_x_of_parameter", [](auto& a) { return add(a.inputs[0], a.inputs[0]); });
    push("x_times_x", [](auto& a) {
      const Tensor h = activation(a.inputs[0]);
      return multiply(h, h);
    });
    push("x_times_x_of_parameter", [](auto& a) { return multiply(a.inputs[0], a.inputs[0]); });
    push("residual_diamond", [](auto& a) {
      const Tensor h = activation(a.inputs[0]);
      return add(h, gelu_tanh(h));
    });
    push("residual_diamond_reversed", [](auto& a) {
      const Tensor h = activation(a.inputs[0]);
      return add(gelu_tanh(h), h);
    });
    rows.push_back({.name = named("nested_residuals", x.shape),
                    .inputs = {{.shape = x.shape, .low = -0.5, .high = 2}},  // below, the residuals cancel each other
                    .indices = {},
                    .forward = [](auto& a) {
                      const Tensor h = activation(a.inputs[0]);
                      const Tensor inner = add(h, gelu_erf(h));
                      const Tensor outer = add(inner, multiply(inner, h));
                      return add(outer, h);
                    }});
    push("reshape_shared", [n](auto& a) {
      const Tensor h = activation(a.inputs[0]);
      const Tensor flat = h.reshape({3 * n});
      return add(multiply(flat, flat), scale(h, 0.25).reshape({3 * n}));
    });
    push("reshaped_parameter",
         [n](auto& a) { return add(scale(a.inputs[0].reshape({3 * n}), 0.5), a.inputs[0].reshape({3 * n})); });
    rows.push_back({.name = named("chain", x.shape),
                    .inputs = {x, {{n}}, {{n}}, {{3, n}}},
                    .indices = {{.shape = {3}, .limit = static_cast<std::int32_t>(n)}},
                    .forward =
                        [](auto& a) {
                          const Tensor normed = layer_norm(a.inputs[0], a.inputs[1], a.inputs[2], 0.1);
                          const Tensor mixed = add(gelu_tanh(normed), multiply(normed, a.inputs[3]));
                          const Tensor dropped = dropout(mixed, 0.2, 3);
                          return softmax_cross_entropy(add(dropped, a.inputs[0]), a.indices[0], 0.05);
                        },
                    .f32_tolerance = 2e-5,
                    // Norm, GELU, sum, dropout and logits; the gradients of logits and dropout, that of the norm's
                    // output in two writes, and that of its input. PyTorch's bf16 is off by up to 7 times 2^-8 in 16
                    // 000 draws of this chain, and by more than 1e-2 in a quarter of them.
                    .bf16_roundings = 10});
  }
}

Rows all_rows() {
  Rows rows;
  add_elementwise(rows);
  add_activations(rows);
  add_reductions(rows);
  add_softmax_cross_entropy(rows);
  add_dropout(rows);
  add_embedding(rows);
  add_layer_norm(rows);
  add_linear(rows);
  add_linear_relu(rows);
  add_conv2d(rows);
  add_conv2d_relu(rows);
  add_pooling(rows);
  add_compositions(rows);
  return rows;
}

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const Rows rows = all_rows();
  return rows;
}

}  // namespace lockstep::testing
