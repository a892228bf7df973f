#include "kernels/cuda/cudnn_graphs.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/check.h"

namespace lockstep::kernels::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// Of each heuristic, the most plans that are timed.
constexpr std::size_t kReadyPlans = 12;
constexpr std::size_t kCompiledPlans = 3;
constexpr std::int64_t kMostWorkspaceBytes = std::int64_t{512} << 20;

void check(cudnnStatus_t status, const char* call,
           const std::source_location& where = std::source_location::current()) {
  if (status != CUDNN_STATUS_SUCCESS) throw CudaError(call, cudnnGetErrorString(status), where);
}

void check(fe::error_t status, const char* call, const std::source_location& where = std::source_location::current()) {
  if (status.is_bad()) throw CudaError(call, status.get_message(), where);
}
#define LOCKSTEP_CUDNN_CHECK(call) check((call), #call)

// cuDNN's handle of the current device. A handle serves one thread at a time: the lock is held while it is used. Never
// destroyed, like the memory that its plans work on.
class Handle {
 public:
  Handle(int device, void* stream) : lock_(mutex()) {
    static auto* handles = new std::map<int, cudnnHandle_t>;
    cudnnHandle_t& handle = (*handles)[device];
    if (handle == nullptr) LOCKSTEP_CUDNN_CHECK(cudnnCreate(&handle));
    handle_ = handle;
    LOCKSTEP_CUDNN_CHECK(cudnnSetStream(handle_, static_cast<cudaStream_t>(stream)));
  }
  cudnnHandle_t get() const { return handle_; }

 private:
  static std::mutex& mutex() {
    static std::mutex instance;
    return instance;
  }
  std::lock_guard<std::mutex> lock_;
  cudnnHandle_t handle_ = nullptr;
};

fe::DataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return fe::DataType_t::FLOAT;
    case DType::bf16:
      return fe::DataType_t::BFLOAT16;
    default:
      detail::wrong_dtype(DType::f32, dtype);
  }
}

}  // namespace

std::string ConvProblem::text() const {
  constexpr std::array passes = {"forward", "data gradient", "weight gradient"};
  constexpr std::array epilogues = {"", " bias", " bias relu", " rectify"};
  const Shape x = {images, height, width, channels};
  const Shape weight = {outputs, kernel_rows, kernel_columns, channels};
  return std::string("conv2d ") + passes[static_cast<std::size_t>(pass)] + " " + dtype_name(dtype) + " " +
         x.to_string() + " " + weight.to_string() + " stride " + std::to_string(stride) + " padding " +
         std::to_string(padding) + epilogues[static_cast<std::size_t>(epilogue)] + " aligned " +
         std::to_string(alignment) + (allow_tf32 ? " tf32" : "") + (deterministic ? " deterministic" : "");
}

struct ConvGraph::Impl {
  explicit Impl(const ConvProblem& p) : problem(p) {
    graph.set_io_data_type(data_type(p.dtype))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    // cuDNN names the dimensions in the order N, C, H, W, whatever the strides.
    const std::vector<std::int64_t> x = {p.images, p.channels, p.height, p.width};
    const std::vector<std::int64_t> w = {p.outputs, p.channels, p.kernel_rows, p.kernel_columns};
    const std::vector<std::int64_t> y = {p.images, p.outputs, p.out_height, p.out_width};
    switch (p.pass) {
      case ConvPass::forward:
        a = tensor("x", x);
        b = tensor("weight", w);
        out = graph.conv_fprop(a, b, with_geometry(fe::graph::Conv_fprop_attributes()));
        if (p.epilogue != ConvEpilogue::none) {
          operand = tensor("bias", {1, p.outputs, 1, 1});
          out = graph.pointwise(out, operand, pointwise(fe::PointwiseMode_t::ADD));
        }
        if (p.epilogue == ConvEpilogue::bias_relu) out = graph.pointwise(out, pointwise(fe::PointwiseMode_t::RELU_FWD));
        finish(y);
        break;
      case ConvPass::data_gradient:
        a = tensor("dy", y);
        b = tensor("weight", w);
        out = graph.conv_dgrad(a, b, with_geometry(fe::graph::Conv_dgrad_attributes()));
        if (p.epilogue == ConvEpilogue::rectify) {
          out->set_dim(x).set_data_type(fe::DataType_t::FLOAT);
          operand = tensor("x", x);
          out = graph.pointwise(out, operand, pointwise(fe::PointwiseMode_t::RELU_BWD));
        }
        finish(x);
        break;
      case ConvPass::weight_gradient:
        a = tensor("dy", y);
        b = tensor("x", x);
        out = graph.conv_wgrad(a, b, with_geometry(fe::graph::Conv_wgrad_attributes()));
        finish(w);
        break;
    }
    find_plans();
  }

  Tensor tensor(const char* name, const std::vector<std::int64_t>& extents) {
    return graph.tensor(fe::graph::Tensor_attributes()
                            .set_name(name)
                            .set_dim(extents)
                            .set_stride(strides(extents))
                            .set_alignment(problem.alignment));
  }
  static std::vector<std::int64_t> strides(const std::vector<std::int64_t>& extents) {
    return {extents[1] * extents[2] * extents[3], 1, extents[1] * extents[3], extents[1]};
  }
  template <class Attributes>
  Attributes with_geometry(Attributes attributes) const {
    attributes.set_padding({problem.padding, problem.padding})
        .set_stride({problem.stride, problem.stride})
        .set_dilation({1, 1});
    return attributes;
  }
  static fe::graph::Pointwise_attributes pointwise(fe::PointwiseMode_t mode) {
    return fe::graph::Pointwise_attributes().set_mode(mode);
  }
  void finish(const std::vector<std::int64_t>& extents) {
    out->set_output(true)
        .set_dim(extents)
        .set_stride(strides(extents))
        .set_data_type(data_type(problem.dtype))
        .set_alignment(problem.alignment);
  }

  // Leaves `order` empty where cuDNN cannot do it. Plans that come ready are tried at once, those to be compiled later.
  void find_plans() {
    const Handle handle(problem.device, nullptr);
    if (graph.validate().is_bad() || graph.build_operation_graph(handle.get()).is_bad()) return;
    for (const auto mode : {fe::HeurMode_t::A, fe::HeurMode_t::B, fe::HeurMode_t::FALLBACK}) {
      if (mode == fe::HeurMode_t::FALLBACK && !order.empty()) return;
      const std::int64_t first = graph.get_execution_plan_count();
      if (graph.create_execution_plans({mode}).is_good()) add_plans(handle, first);
    }
  }

  // Those from cuDNN's number `first` on.
  void add_plans(const Handle& handle, std::int64_t first) {
    std::vector<fe::NumericalNote_t> unwanted = {fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION};
    if (problem.dtype == DType::f32) {
      unwanted.push_back(fe::NumericalNote_t::DOWN_CONVERT_INPUTS);
      if (!problem.allow_tf32) unwanted.push_back(fe::NumericalNote_t::TENSOR_CORE);
    }
    if (problem.deterministic) unwanted.push_back(fe::NumericalNote_t::NONDETERMINISTIC);
    graph.deselect_numeric_notes(unwanted);
    graph.deselect_workspace_greater_than(kMostWorkspaceBytes);
    // Without timing only the first is of use.
    std::size_t ready = problem.deterministic ? 1 : kReadyPlans, compiled = problem.deterministic ? 1 : kCompiledPlans;
    for (std::int64_t i = first; i < graph.get_execution_plan_count(); ++i) {
      if (!seen.insert(name_of(i)).second) continue;
      if (is_compiled(i)) {
        if (compiled == 0) continue;
        --compiled;
      } else {
        if (ready == 0 || graph.build_plan_at_index(handle.get(), i).is_bad()) continue;
        --ready;
        built.insert(i);
      }
      order.push_back(i);
    }
  }

  std::string name_of(std::int64_t i) const {
    std::string name;
    LOCKSTEP_CUDNN_CHECK(graph.get_plan_name_at_index(i, name));
    return name;
  }
  // By cuDNN when the plan is built, which takes a second or two.
  bool is_compiled(std::int64_t i) const {
    std::vector<fe::BehaviorNote_t> notes;
    LOCKSTEP_CUDNN_CHECK(graph.get_behavior_notes_for_plan_at_index(i, notes));
    return std::ranges::find(notes, fe::BehaviorNote_t::RUNTIME_COMPILATION) != notes.end();
  }

  ConvProblem problem;
  fe::graph::Graph graph;
  Tensor a, b, operand, out;
  std::vector<std::int64_t> order;  // cuDNN's numbers of the plans
  std::set<std::int64_t> built;     // of them
  std::set<std::string> seen;       // the heuristics overlap
};

ConvGraph::ConvGraph(const ConvProblem& problem) : impl_(std::make_unique<Impl>(problem)) {}

ConvGraph::~ConvGraph() = default;

int ConvGraph::plans() const { return static_cast<int>(impl_->order.size()); }

std::string ConvGraph::name(int plan) const { return impl_->name_of(impl_->order[static_cast<std::size_t>(plan)]); }

std::size_t ConvGraph::workspace_bytes(int plan) {
  const std::int64_t index = impl_->order[static_cast<std::size_t>(plan)];
  if (impl_->built.insert(index).second) {
    const Handle handle(impl_->problem.device, nullptr);
    LOCKSTEP_CUDNN_CHECK(impl_->graph.build_plan_at_index(handle.get(), index));
  }
  std::int64_t bytes = 0;
  LOCKSTEP_CUDNN_CHECK(impl_->graph.get_workspace_size_plan_at_index(index, bytes));
  return static_cast<std::size_t>(bytes);
}

void ConvGraph::run(int plan, void* stream, const void* a, const void* b, const void* operand, void* out,
                    void* workspace) {
  const Handle handle(impl_->problem.device, stream);
  std::unordered_map<Tensor, void*> addresses = {
      {impl_->a, const_cast<void*>(a)}, {impl_->b, const_cast<void*>(b)}, {impl_->out, out}};
  if (impl_->operand != nullptr) addresses.emplace(impl_->operand, const_cast<void*>(operand));
  LOCKSTEP_CUDNN_CHECK(impl_->graph.execute_plan_at_index(handle.get(), addresses, workspace,
                                                          impl_->order[static_cast<std::size_t>(plan)]));
}

}  // namespace lockstep::kernels::cuda
