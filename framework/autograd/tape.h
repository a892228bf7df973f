// Reverse-mode differentiation. While a Tape exists, every op whose inputs need a gradient appends a node; backward is
// one loop over the nodes in reverse.
//
//     Tape tape;
//     Tensor loss = softmax_cross_entropy(model.forward(images), labels);
//     tape.backward(loss);
//
// The tape counts how many gradient writes it owes each parameter, and tells a GradientSink the moment it owes none:
// that is where data parallelism hooks in (framework/distributed/bucketer.h).
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "framework/autograd/variable.h"
#include "framework/core/tensor.h"

namespace lockstep {

// Is told of parameters' gradients while backward runs.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  // Before the first node runs: every parameter that this backward will write, in the order of their last writes.
  virtual void begin(std::span<Parameter* const> expected) = 0;
  // `parameter.grad()` is complete: this backward will not write it again.
  virtual void ready(Parameter& parameter) = 0;
};

// What a node's backward function sees. Inputs and outputs are numbered as they were recorded.
class Backward {
 public:
  // Gradient of the loss with respect to an output; undefined where the loss does not depend on that output.
  const Tensor& dy(int output = 0) const { return output_grads_[static_cast<std::size_t>(output)]; }
  bool needs(int input) const { return inputs_[static_cast<std::size_t>(input)] != nullptr; }
  // Where the gradient of an input goes, and whether to overwrite or to add; null where it is not needed. An
  // activation's gradient is allocated with the given shape and type, a parameter's keeps its own type. One call per
  // input.
  GradView target(int input, const Shape& shape, DType dtype);
  // The same for kernels that may rectify the gradient on the way: GradView::unrectified is set where the input was
  // made by a ReLU. Where every reader rectifies, that ReLU need not pass over the gradient again.
  GradView rectified_target(int input, const Shape& shape, DType dtype);
  // Whether the output was made by a ReLU and its gradient is already 0 where the output is.
  bool rectified(int output = 0) const;
  // Hands over a tensor that is the gradient of an input, without a copy where none is needed. It may be handed to
  // several inputs: whoever adds to it later gets a copy of its own.
  void pass(int input, Tensor gradient);

 private:
  friend class Tape;
  std::vector<Tensor> output_grads_;
  std::span<const std::shared_ptr<Variable>> inputs_, outputs_;
};

class Tape {
 public:
  using BackwardFunction = std::function<void(Backward&)>;

  // Becomes the calling thread's current tape until destroyed.
  Tape();
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  static Tape* current();

  // Gradients of `loss` (a scalar), times `seed`, into every parameter that it depends on. Consumes the tape: saved
  // tensors are released node by node. Ops that run meanwhile are not recorded.
  void backward(const Tensor& loss, double seed = 1.0, GradientSink* sink = nullptr);
  // The same with a seed that is on the device already: one number of the loss's type.
  void backward(const Tensor& loss, const Tensor& seed, GradientSink* sink = nullptr);

  // The parameters that `loss` depends on, in the order in which backward would finish their gradients.
  std::vector<Parameter*> gradient_order(const Tensor& loss) const;

  // Whether an op has an input within `memory` of which it owes no gradient, as a detached parameter: its backward may
  // read that after every gradient of the parameter was written.
  bool reads_without_gradient(const ConstView& memory) const;

 private:
  struct Node {
    const char* name;
    std::vector<std::shared_ptr<Variable>> inputs;  // null where no gradient is needed
    std::vector<std::shared_ptr<Variable>> outputs;
    std::vector<const void*> constants;  // where inputs are that need no gradient
    BackwardFunction backward;
  };
  struct Plan;

  friend void record(const char*, std::initializer_list<const Tensor*>, std::initializer_list<Tensor*>,
                     BackwardFunction);
  friend void record_consuming(const char*, const Tensor&, Tensor*, BackwardFunction);
  void append(const char* name, std::span<const Tensor* const> inputs, std::span<Tensor* const> outputs,
              BackwardFunction backward);
  Plan plan(const Tensor& loss) const;

  std::vector<Node> nodes_;
  Tape* previous_;
};

// True where ops are being recorded and one of the tensors needs a gradient: an op saves what backward needs only then.
bool needs_grad(std::initializer_list<const Tensor*> inputs);

// Appends a node to the current tape and marks the outputs as needing a gradient; does nothing unless
// needs_grad(inputs).
void record(const char* name, std::initializer_list<const Tensor*> inputs, std::initializer_list<Tensor*> outputs,
            Tape::BackwardFunction backward);

// Says that an output, just recorded, was made by a ReLU. Does nothing where the op was not recorded.
void mark_rectified(const Tensor& output);

// The same for an op of one input whose backward overwrites that input's memory. Throws std::invalid_argument if
// another node reads the input, now or later.
void record_consuming(const char* name, const Tensor& input, Tensor* output, Tape::BackwardFunction backward);

}  // namespace lockstep
