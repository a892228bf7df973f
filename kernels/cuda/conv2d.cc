// Each pass of each convolution has candidates: plans of cuDNN, patches of images in shared memory where channels are
// few, and direct loops. The plan phase times them and keeps the fastest.
#include "kernels/conv2d.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/cuda/bias.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cudnn_graphs.h"
#include "kernels/cuda/direct_conv2d.h"
#include "kernels/cuda/patch_conv2d.h"
#include "kernels/cuda/plan.h"
#include "kernels/elementwise.h"

namespace lockstep::kernels {
namespace {

using cuda::ConvEpilogue;
using cuda::ConvGraph;
using cuda::ConvPass;
using cuda::ConvProblem;

// Up to this many multiplications the direct loops may win.
constexpr std::int64_t kFewMultiplications = std::int64_t{1} << 27;

// One pass and its tensors: forward reads x and weight, the data gradient dy and weight, the weight gradient dy and x.
struct Pass {
  ConvPass kind;
  ConstView a, b;
  ConvEpilogue epilogue = ConvEpilogue::none;
  ConstView operand;  // of the epilogue: the bias, or x
  Conv2dParams params;
  GradView out;
  GradView dbias;  // of the weight gradient's epilogue
};

enum class Algorithm : std::uint8_t { graph, patch, loops, direct };

struct Candidate {
  Algorithm algorithm = Algorithm::graph;
  bool fused = false;  // does the epilogue
  ConvGraph* graph = nullptr;
  int plan = 0;  // of the graph
};

struct Plan {
  std::vector<std::unique_ptr<ConvGraph>> graphs;
  std::vector<Candidate> candidates;
  int choice = -1;
};

// The direct loops add the bias on the way.
void run_direct(const ExecContext& exec, const Pass& pass) {
  switch (pass.kind) {
    case ConvPass::forward:
      return cuda::direct_forward(exec, pass.a, pass.b, pass.operand, pass.params,
                                  pass.epilogue == ConvEpilogue::bias_relu, pass.out.view);
    case ConvPass::data_gradient:
      return cuda::direct_data_gradient(exec, pass.a, pass.b, pass.params, pass.out);
    case ConvPass::weight_gradient:
      return cuda::direct_weight_gradient(exec, pass.a, pass.b, pass.params, pass.out);
  }
}

void run_patch(const ExecContext& exec, const Pass& pass, const cuda::PatchConv2d& by) {
  switch (pass.kind) {
    case ConvPass::forward:
      return by.forward(exec, pass.a, pass.b, pass.operand, pass.params, pass.epilogue == ConvEpilogue::bias_relu,
                        pass.out.view);
    case ConvPass::data_gradient:
      return by.data_gradient(exec, pass.a, pass.b, pass.params, pass.out);
    case ConvPass::weight_gradient:
      return by.weight_gradient(exec, pass.a, pass.b, pass.params, pass.out, pass.dbias);
  }
}

// cuDNN overwrites, in the type that it reads. What is to be added, or is of another type, goes through the workspace.
void run_graph(const ExecContext& exec, const Pass& pass, const Candidate& candidate) {
  const View& target = pass.out.view;
  const bool detour = pass.out.accumulate || pass.a.dtype != target.dtype;
  const std::size_t own = (candidate.graph->workspace_bytes(candidate.plan) + 255) / 256 * 256;
  const auto result_bytes = static_cast<std::size_t>(target.numel() * dtype_bytes(pass.a.dtype));
  auto* const memory = static_cast<std::byte*>(exec.workspace->reserve(own + (detour ? result_bytes : 0)));
  void* const result = detour ? memory + own : target.data;
  candidate.graph->run(candidate.plan, exec.stream, pass.a.data, pass.b.data, pass.operand.data, result, memory);
  if (detour) cuda::accumulate(exec, {result, pass.a.dtype, target.shape}, pass.out);
}

// What is left of the epilogue. A gradient that was not rectified on the way is left to the ReLU itself, whose pass
// over it serves the bias too.
void finish(const ExecContext& exec, const Pass& pass) {
  switch (pass.epilogue) {
    case ConvEpilogue::none:
      return;
    case ConvEpilogue::bias:
      if (pass.kind == ConvPass::weight_gradient) return cuda::bias_gradient(exec, pass.a, pass.dbias);
      return cuda::add_bias(exec, pass.operand, Activation::none, pass.out.view);
    case ConvEpilogue::bias_relu:
      return cuda::add_bias(exec, pass.operand, Activation::relu, pass.out.view);
    case ConvEpilogue::rectify:
      *pass.out.unrectified = true;
  }
}

void run(const ExecContext& exec, const Pass& pass, const Candidate& candidate) {
  switch (candidate.algorithm) {
    case Algorithm::graph:
      run_graph(exec, pass, candidate);
      break;
    case Algorithm::patch:
      run_patch(exec, pass, cuda::kPatchTiles);
      break;
    case Algorithm::loops:
      run_patch(exec, pass, cuda::kPatchLoops);
      break;
    case Algorithm::direct:
      run_direct(exec, pass);
  }
  if (!candidate.fused) finish(exec, pass);
}

// What is to be timed: the pass and, where it may rectify a gradient, what its ReLU has to do afterwards.
void try_out(const ExecContext& exec, const Pass& pass, const Candidate& candidate) {
  bool unrectified = false;
  Pass own = pass;
  if (pass.out.unrectified != nullptr) own.out.unrectified = &unrectified;
  run(exec, own, candidate);
  if (pass.epilogue != ConvEpilogue::rectify) return;
  const std::int64_t channels = pass.out.view.shape[3];
  constexpr std::size_t kBeyond = std::size_t{8} << 20;  // of what the sums over columns use
  auto* const memory =
      static_cast<std::byte*>(exec.workspace->reserve(kBeyond + static_cast<std::size_t>(channels) * sizeof(float)));
  const GradView sums = {{memory + kBeyond, DType::f32, {channels}}, false};
  if (unrectified) {
    cuda::relu_bias_backward(exec, pass.out.view, pass.operand, pass.out.view, sums);
  } else {
    cuda::bias_gradient(exec, pass.out.view, sums);
  }
}

ConvProblem problem_of(const ExecContext& exec, const Pass& pass, const Shape& x, const Shape& weight, const Shape& y) {
  std::uintptr_t bits = 16;
  for (const void* address :
       {pass.a.data, pass.b.data, pass.operand.data, static_cast<const void*>(pass.out.view.data)}) {
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
                      .epilogue = pass.epilogue,
                      .alignment = static_cast<int>(bits & (~bits + 1)),
                      .allow_tf32 = exec.allow_tf32,
                      .deterministic = exec.deterministic,
                      .device = 0};
  LOCKSTEP_CUDA_CHECK(cudaGetDevice(&problem.device));
  return problem;
}

void add_graph(Plan& plan, const ConvProblem& problem, bool fused) {
  auto graph = std::make_unique<ConvGraph>(problem);
  for (int i = 0; i < graph->plans(); ++i) plan.candidates.push_back({.fused = fused, .graph = graph.get(), .plan = i});
  if (graph->plans() > 0) plan.graphs.push_back(std::move(graph));
}

bool patch_fits(const ConvProblem& p, bool loops) {
  const Shape x = {p.images, p.height, p.width, p.channels};
  const Shape weight = {p.outputs, p.kernel_rows, p.kernel_columns, p.channels};
  const Shape y = {p.images, p.out_height, p.out_width, p.outputs};
  const Conv2dParams params = {.stride = p.stride, .padding = p.padding};
  if (p.dtype == (loops ? DType::bf16 : DType::f32) && !(loops && p.pass == ConvPass::weight_gradient)) return false;
  const cuda::PatchConv2d& by = loops ? cuda::kPatchLoops : cuda::kPatchTiles;
  switch (p.pass) {
    case ConvPass::forward:
      return by.forward_fits(x, weight, y, params);
    case ConvPass::data_gradient:
      return by.data_gradient_fits(x, weight, y, params);
    case ConvPass::weight_gradient:
      return by.weight_gradient_fits(x, weight, y, params);
  }
  return false;
}

Plan candidates_of(const ConvProblem& problem) {
  Plan plan;
  const std::int64_t multiplications = problem.images * problem.out_height * problem.out_width * problem.outputs *
                                       problem.kernel_rows * problem.kernel_columns * problem.channels;
  const bool forward = problem.pass == ConvPass::forward;
  const Candidate direct = {.algorithm = Algorithm::direct, .fused = forward};
  for (const Algorithm algorithm : {Algorithm::patch, Algorithm::loops}) {
    if (!patch_fits(problem, algorithm == Algorithm::loops)) continue;
    plan.candidates.push_back({.algorithm = algorithm, .fused = problem.epilogue != ConvEpilogue::rectify});
  }
  if (multiplications <= kFewMultiplications) plan.candidates.push_back(direct);
  // Forward, cuDNN's plans with a bias are as fast as those without; rectifying a gradient can cost more than it saves.
  ConvProblem plain = problem;
  plain.epilogue = ConvEpilogue::none;
  if (forward || problem.epilogue == ConvEpilogue::rectify) add_graph(plan, problem, true);
  if (!forward || plan.graphs.empty()) add_graph(plan, plain, false);
  if (plan.candidates.empty()) plan.candidates.push_back(direct);
  return plan;
}

void convolve(const ExecContext& exec, const Pass& pass, const Shape& x, const Shape& weight, const Shape& y) {
  static std::mutex mutex;
  static auto* plans = new std::map<ConvProblem, Plan>;  // never destroyed, like the memory that they work on
  const ConvProblem problem = problem_of(exec, pass, x, weight, y);
  const std::lock_guard lock(mutex);
  Plan& plan = (*plans)[problem];
  const auto candidate = [&plan](int i) -> const Candidate& { return plan.candidates[static_cast<std::size_t>(i)]; };
  if (plan.choice < 0) {
    cuda::expect_planning(exec, problem.text());
    plan = candidates_of(problem);
    plan.choice = cuda::choose(exec, problem.text(),
                               {.count = static_cast<int>(plan.candidates.size()),
                                .run = [&](int i, const ExecContext& own) { try_out(own, pass, candidate(i)); },
                                .name =
                                    [&](int i) {
                                      const Candidate& c = candidate(i);
                                      if (c.algorithm == Algorithm::patch) return std::string("patch");
                                      if (c.algorithm == Algorithm::loops) return std::string("loops");
                                      if (c.algorithm == Algorithm::direct) return std::string("direct");
                                      return c.graph->name(c.plan) +
                                             (c.fused && pass.epilogue != ConvEpilogue::none ? " fused" : "");
                                    }},
                               {pass.out, pass.dbias});
    std::erase_if(plan.graphs, [&](const auto& graph) { return graph.get() != candidate(plan.choice).graph; });
  }
  run(exec, pass, candidate(plan.choice));
}

}  // namespace

void cuda::conv2d_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias,
                          const Conv2dParams& params, Activation activation, View y) {
  if (y.numel() == 0) return;
  const bool has_relu = activation == Activation::relu;
  const bool has_bias = bias.data != nullptr;
  const ConvEpilogue epilogue = !has_bias  ? ConvEpilogue::none
                                : has_relu ? ConvEpilogue::bias_relu
                                           : ConvEpilogue::bias;
  convolve(exec,
           {.kind = ConvPass::forward,
            .a = x,
            .b = weight,
            .epilogue = epilogue,
            .operand = bias,
            .params = params,
            .out = {y, false},
            .dbias = {}},
           x.shape, weight.shape, y.shape);
  if (has_relu && !has_bias) relu_forward(exec, y, y);
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
    // What is to be rectified is a new tensor, unless several ops read x.
    const bool rectify = dx.unrectified != nullptr && !dx.accumulate;
    if (dx.unrectified != nullptr && !rectify) *dx.unrectified = true;
    convolve(exec,
             {.kind = ConvPass::data_gradient,
              .a = dy,
              .b = weight,
              .epilogue = rectify ? ConvEpilogue::rectify : ConvEpilogue::none,
              .operand = rectify ? x : ConstView{},
              .params = params,
              .out = dx,
              .dbias = {}},
             x.shape, weight.shape, dy.shape);
  }
  if (dweight) {
    convolve(exec,
             {.kind = ConvPass::weight_gradient,
              .a = dy,
              .b = x,
              .epilogue = dbias ? ConvEpilogue::bias : ConvEpilogue::none,
              .operand = {},
              .params = params,
              .out = dweight,
              .dbias = dbias},
             x.shape, weight.shape, dy.shape);
  } else if (dbias) {
    bias_gradient(exec, dy, dbias);
  }
}

}  // namespace lockstep::kernels
