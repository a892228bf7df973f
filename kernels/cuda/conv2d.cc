// Each pass of each convolution has candidates: plans of cuDNN, and direct loops where channels are few. The plan phase
// times them and keeps the fastest.
#include "kernels/conv2d.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cuda/bias.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cudnn_graphs.h"
#include "kernels/cuda/direct_conv2d.h"
#include "kernels/cuda/plan.h"
#include "kernels/elementwise.h"

namespace lockstep::kernels {
namespace {

using cuda::ConvGraph;
using cuda::ConvPass;
using cuda::ConvProblem;

// Up to this many multiplications the direct loops may win.
constexpr std::int64_t kFewMultiplications = std::int64_t{1} << 27;

// One pass and its tensors: forward reads x and weight, the data gradient dy and weight, the weight gradient dy and x.
struct Pass {
  ConvPass kind;
  ConstView a, b, bias;  // bias: forward, or null data
  Conv2dParams params;
  GradView out;
};

struct Candidate {
  ConvGraph* graph = nullptr;  // null: the direct loops
  int plan = 0;                // of the graph
  DType dtype = DType::f32;    // that the graph writes
  bool adds_bias = false;
};

struct Plan {
  std::vector<std::unique_ptr<ConvGraph>> graphs;
  std::vector<Candidate> candidates;
  int choice = -1;
};

void run_direct(const ExecContext& exec, const Pass& pass) {
  switch (pass.kind) {
    case ConvPass::forward:
      return cuda::direct_forward(exec, pass.a, pass.b, pass.bias, pass.params, pass.out.view);
    case ConvPass::data_gradient:
      return cuda::direct_data_gradient(exec, pass.a, pass.b, pass.params, pass.out);
    case ConvPass::weight_gradient:
      return cuda::direct_weight_gradient(exec, pass.a, pass.b, pass.params, pass.out);
  }
}

// cuDNN overwrites. What is to be added, or is of another type than cuDNN can write, goes through the workspace.
void run_graph(const ExecContext& exec, const Pass& pass, const Candidate& candidate) {
  const View& target = pass.out.view;
  const bool detour = pass.out.accumulate || candidate.dtype != target.dtype;
  const std::size_t own = (candidate.graph->workspace_bytes(candidate.plan) + 255) / 256 * 256;
  const auto result_bytes = static_cast<std::size_t>(target.numel() * dtype_bytes(candidate.dtype));
  auto* const memory = static_cast<std::byte*>(exec.workspace->reserve(own + (detour ? result_bytes : 0)));
  void* const result = detour ? memory + own : target.data;
  candidate.graph->run(candidate.plan, exec.stream, pass.a.data, pass.b.data, pass.bias.data, result, memory);
  if (detour) cuda::accumulate(exec, {result, candidate.dtype, target.shape}, pass.out);
  if (pass.bias.data != nullptr && !candidate.adds_bias) cuda::add_bias(exec, pass.bias, target);
}

void run(const ExecContext& exec, const Pass& pass, const Candidate& candidate) {
  candidate.graph == nullptr ? run_direct(exec, pass) : run_graph(exec, pass, candidate);
}

ConvProblem problem_of(const ExecContext& exec, const Pass& pass, const Shape& x, const Shape& weight, const Shape& y) {
  std::uintptr_t bits = 16;
  for (const void* address : {pass.a.data, pass.b.data, pass.bias.data, static_cast<const void*>(pass.out.view.data)}) {
    bits |= reinterpret_cast<std::uintptr_t>(address);
  }
  ConvProblem problem{.pass = pass.kind,
                      .images = x[0],
                      .height = x[1],
                      .width = x[2],
                      .channels = x[3],
                      .outputs = weight[0],
                      .kernel_rows = weight[1],
                      .kernel_columns = weight[2],
                      .out_height = y[1],
                      .out_width = y[2],
                      .stride = pass.params.stride,
                      .padding = pass.params.padding,
                      .dtype = pass.a.dtype,
                      .out_dtype = pass.out.view.dtype,
                      .bias = pass.bias.data != nullptr,
                      .alignment = static_cast<int>(bits & (~bits + 1)),
                      .allow_tf32 = exec.allow_tf32,
                      .deterministic = exec.deterministic,
                      .device = 0};
  LOCKSTEP_CUDA_CHECK(cudaGetDevice(&problem.device));
  return problem;
}

void add_graph(Plan& plan, const ConvProblem& problem) {
  auto graph = std::make_unique<ConvGraph>(problem);
  for (int i = 0; i < graph->plans(); ++i) {
    plan.candidates.push_back({.graph = graph.get(), .plan = i, .dtype = problem.out_dtype, .adds_bias = problem.bias});
  }
  if (graph->plans() > 0) plan.graphs.push_back(std::move(graph));
}

Plan candidates_of(const ConvProblem& problem) {
  Plan plan;
  const std::int64_t multiplications = problem.images * problem.out_height * problem.out_width * problem.outputs *
                                       problem.kernel_rows * problem.kernel_columns * problem.channels;
  if (multiplications <= kFewMultiplications) plan.candidates.push_back({});
  add_graph(plan, problem);
  if (problem.bias) {
    ConvProblem without = problem;
    without.bias = false;
    add_graph(plan, without);
  }
  if (plan.graphs.empty() && problem.out_dtype != problem.dtype) {
    ConvProblem narrower = problem;
    narrower.out_dtype = problem.dtype;
    add_graph(plan, narrower);
  }
  if (plan.candidates.empty()) plan.candidates.push_back({});
  return plan;
}

void convolve(const ExecContext& exec, const Pass& pass, const Shape& x, const Shape& weight, const Shape& y) {
  static std::mutex mutex;
  static auto* plans = new std::map<ConvProblem, Plan>;  // never destroyed, like the memory that they work on
  const ConvProblem problem = problem_of(exec, pass, x, weight, y);
  const std::lock_guard lock(mutex);
  Plan& plan = (*plans)[problem];
  if (plan.choice < 0) {
    cuda::expect_planning(exec, problem.text());
    plan = candidates_of(problem);
    plan.choice = cuda::choose(
        exec, problem.text(), static_cast<int>(plan.candidates.size()),
        [&](int candidate, const ExecContext& own) {
          run(own, pass, plan.candidates[static_cast<std::size_t>(candidate)]);
        },
        pass.out);
    std::erase_if(plan.graphs, [&](const auto& graph) {
      return graph.get() != plan.candidates[static_cast<std::size_t>(plan.choice)].graph;
    });
  }
  run(exec, pass, plan.candidates[static_cast<std::size_t>(plan.choice)]);
}

}  // namespace

void cuda::conv2d_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias,
                          const Conv2dParams& params, Activation activation, View y) {
  if (y.numel() == 0) return;
  convolve(exec, {.kind = ConvPass::forward, .a = x, .b = weight, .bias = bias, .params = params, .out = {y, false}},
           x.shape, weight.shape, y.shape);
  if (activation == Activation::relu) relu_forward(exec, y, y);
}

void cuda::conv2d_backward(const ExecContext& exec, ConstView dy, ConstView x, ConstView weight,
                           const Conv2dParams& params, GradView dx, GradView dweight, GradView dbias) {
  if (dy.numel() == 0) {
    for (const GradView& target : {dweight, dbias}) {
      if (target && !target.accumulate) fill(exec, target.view, 0);
    }
    return;
  }
  if (dx) {
    convolve(exec, {.kind = ConvPass::data_gradient, .a = dy, .b = weight, .bias = {}, .params = params, .out = dx},
             x.shape, weight.shape, dy.shape);
    if (dx.rectify) relu_backward(exec, dx.view, x, {dx.view, false});
  }
  if (dweight) {
    convolve(exec, {.kind = ConvPass::weight_gradient, .a = dy, .b = x, .bias = {}, .params = params, .out = dweight},
             x.shape, weight.shape, dy.shape);
  }
  if (dbias) bias_gradient(exec, dy, dbias);
}

}  // namespace lockstep::kernels
