#include "framework/autograd/tape.h"

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <utility>

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/profile_range.h"
#include "kernels/dispatch.h"
#include "kernels/elementwise.h"

namespace lockstep {
namespace {

thread_local Tape* current_tape = nullptr;

void copy_or_add(const Tensor& source, GradView target) {
  LOCKSTEP_DISPATCH(accumulate, context().exec(), source, target);
}

class StopRecording {
 public:
  StopRecording() : stopped_(std::exchange(current_tape, nullptr)) {}
  ~StopRecording() { current_tape = stopped_; }
  StopRecording(const StopRecording&) = delete;
  StopRecording& operator=(const StopRecording&) = delete;

 private:
  Tape* stopped_;
};

}  // namespace

GradView Backward::target(int input, const Shape& shape, DType dtype) {
  const auto& variable = inputs_[static_cast<std::size_t>(input)];
  if (variable != nullptr) variable->unrectified = true;
  GradView target = rectified_target(input, shape, dtype);
  target.unrectified = nullptr;
  return target;
}

GradView Backward::rectified_target(int input, const Shape& shape, DType dtype) {
  const auto& variable = inputs_[static_cast<std::size_t>(input)];
  if (variable == nullptr) return {};
  Tensor& grad = variable->grad;
  const bool accumulate = std::exchange(variable->written, true);
  if (!grad.defined()) {
    grad = Tensor::empty(shape, dtype);
  } else if (accumulate && variable->parameter == nullptr && !grad.unique()) {
    // Passed to several inputs at once (see pass): adding in place would change the others' gradients too.
    Tensor copy = Tensor::empty(grad.shape(), grad.dtype());
    copy_or_add(grad, {copy.view(), false});
    grad = std::move(copy);
  }
  View view = grad.view();
  view.shape = shape;  // of the caller's choice: a reshaped tensor shares its gradient
  return {view, accumulate, variable->rectified ? &variable->unrectified : nullptr};
}

bool Backward::rectified(int output) const {
  const Variable& variable = *outputs_[static_cast<std::size_t>(output)];
  return variable.rectified && !variable.unrectified;
}

void Backward::pass(int input, Tensor gradient) {
  const auto& variable = inputs_[static_cast<std::size_t>(input)];
  if (variable == nullptr) return;
  if (variable->parameter == nullptr && !variable->written) {
    variable->grad = std::move(gradient);
    variable->written = true;
    variable->unrectified = true;
  } else {
    copy_or_add(gradient, target(input, gradient.shape(), gradient.dtype()));
  }
}

Tape::Tape() : previous_(std::exchange(current_tape, this)) {}

Tape::~Tape() { current_tape = previous_; }

Tape* Tape::current() { return current_tape; }

void Tape::append(const char* name, std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs,
                  BackwardFunction backward) {
  Node node{.name = name, .inputs = {}, .outputs = {}, .constants = {}, .backward = std::move(backward)};
  for (const Tensor* input : inputs) {
    const auto& variable = input->variable();
    if (variable != nullptr) {
      expect(!variable->consumed, "{}: an earlier op overwrites this input in backward; expected no second reader",
             name);
      if (variable->parameter == nullptr) ++variable->readers;
    } else {
      node.constants.push_back(input->view().data);
    }
    node.inputs.push_back(variable);
  }
  for (Tensor* output : outputs) {
    output->set_variable(std::make_shared<Variable>());
    output->variable()->shape = output->shape();
    node.outputs.push_back(output->variable());
  }
  nodes_.push_back(std::move(node));
}

// Which nodes will run, and the gradient writes they will do.
struct Tape::Plan {
  std::vector<bool> runs;
  std::vector<Parameter*> writes;  // in order, a parameter once for each write

  std::vector<Parameter*> order_of_last_write() const {
    std::vector<Parameter*> order;
    std::unordered_set<Parameter*> seen;
    for (auto write = writes.rbegin(); write != writes.rend(); ++write) {
      if (seen.insert(*write).second) order.push_back(*write);
    }
    std::reverse(order.begin(), order.end());
    return order;
  }
};

Tape::Plan Tape::plan(const Tensor& loss) const {
  expect(loss.numel() == 1, "backward: expected a scalar loss, got shape {}", loss.shape());
  expect(loss.variable() != nullptr && loss.variable()->parameter == nullptr,
         "backward: expected a loss that was computed from a parameter while this tape existed");
  Plan plan{.runs = std::vector<bool>(nodes_.size()), .writes = {}};
  std::unordered_set<const Variable*> reached{loss.variable().get()};
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const Node& node = nodes_[i];
    plan.runs[i] = std::any_of(node.outputs.begin(), node.outputs.end(),
                               [&](const auto& output) { return reached.contains(output.get()); });
    if (!plan.runs[i]) continue;
    for (const auto& input : node.inputs) {
      if (input == nullptr) continue;
      reached.insert(input.get());
      if (input->parameter != nullptr) plan.writes.push_back(input->parameter);
    }
  }
  expect(std::find(plan.runs.begin(), plan.runs.end(), true) != plan.runs.end(),
         "backward: expected a loss that this tape recorded, and only one backward for each tape");
  return plan;
}

std::vector<Parameter*> Tape::gradient_order(const Tensor& loss) const { return plan(loss).order_of_last_write(); }

bool Tape::reads_without_gradient(const ConstView& memory) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data);
  const auto size = static_cast<std::uintptr_t>(memory.bytes());
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& node) {
    return std::any_of(node.constants.begin(), node.constants.end(),
                       [&](const void* at) { return reinterpret_cast<std::uintptr_t>(at) - begin < size; });
  });
}

void Tape::backward(const Tensor& loss, double seed, GradientSink* sink) {
  const Tensor on_device = Tensor::empty({}, loss.dtype());
  LOCKSTEP_DISPATCH(fill, context().exec(), on_device, seed);
  backward(loss, on_device, sink);
}

void Tape::backward(const Tensor& loss, const Tensor& seed, GradientSink* sink) {
  const ProfileRange range("backward");
  const Plan planned = plan(loss);
  expect(seed.numel() == 1 && seed.dtype() == loss.dtype(), "backward: expected a seed of one {}, got {} {}",
         dtype_name(loss.dtype()), seed.shape(), dtype_name(seed.dtype()));
  if (sink != nullptr) sink->begin(planned.order_of_last_write());
  for (Parameter* parameter : planned.writes)
    parameter->variable().owed_writes = 0;  // an earlier backward may have thrown
  for (Parameter* parameter : planned.writes) ++parameter->variable().owed_writes;

  loss.variable()->grad = seed.reshape(loss.shape());
  loss.variable()->written = true;

  const StopRecording stop;  // an op that a backward function uses must not append to the nodes that run
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    if (planned.runs[i]) {
      Node& node = nodes_[i];
      Backward backward;
      backward.inputs_ = node.inputs;
      backward.outputs_ = node.outputs;
      for (const auto& output : node.outputs) {
        const Tensor grad = std::exchange(output->grad, {});
        backward.output_grads_.push_back(grad.defined() ? grad.reshape(output->shape) : Tensor{});
      }
      node.backward(backward);
      for (const auto& input : node.inputs) {
        if (input == nullptr) continue;
        if (!input->written) throw std::logic_error(std::string(node.name) + ": backward left a gradient unwritten");
        if (input->parameter != nullptr && --input->owed_writes == 0 && sink != nullptr) sink->ready(*input->parameter);
      }
    }
    nodes_.pop_back();  // with it goes what the node had saved
  }
}

bool needs_grad(std::initializer_list<const Tensor*> inputs) {
  return current_tape != nullptr &&
         std::any_of(inputs.begin(), inputs.end(), [](const Tensor* input) { return input->variable() != nullptr; });
}

void record(const char* name, std::initializer_list<const Tensor*> inputs, std::initializer_list<Tensor*> outputs,
            Tape::BackwardFunction backward) {
  if (!needs_grad(inputs)) return;
  current_tape->append(name, inputs, outputs, std::move(backward));
}

void mark_rectified(const Tensor& output) {
  if (output.variable() != nullptr) output.variable()->rectified = true;
}

void record_consuming(const char* name, const Tensor& input, Tensor* output, Tape::BackwardFunction backward) {
  if (!needs_grad({&input})) return;
  expect(input.variable()->readers == 0 && input.variable()->parameter == nullptr,
         "{}: overwrites its input in backward; expected an activation that no other op reads", name);
  const Tensor* inputs[] = {&input};
  current_tape->append(name, inputs, {&output, 1}, std::move(backward));
  input.variable()->consumed = true;
}

}  // namespace lockstep
