// What the tape knows of a tensor that needs a gradient.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "framework/core/tensor.h"

namespace lockstep {

struct Parameter;

struct Variable {
  Shape shape;                     // of the tensor as its op made it; reshaped tensors share the Variable
  Tensor grad;                     // undefined until the first write; a parameter's is its slot in the arena
  bool written = false;            // the next write adds to `grad` instead of overwriting it
  int owed_writes = 0;             // writes that the running backward pass still owes
  int readers = 0;                 // nodes on the tape that read the activation
  bool consumed = false;           // an op overwrites the tensor's memory in backward: nobody else may read it
  Parameter* parameter = nullptr;  // set for parameters, null for activations
};

// A named tensor that training changes. Held by shared_ptr: tied weights are one Parameter in two modules.
struct Parameter {
  Parameter(std::string parameter_name, Tensor initial, bool weight_decay)
      : name(std::move(parameter_name)), value(std::move(initial)), decay(weight_decay) {
    auto variable = std::make_shared<Variable>();
    variable->shape = value.shape();
    variable->parameter = this;
    value.set_variable(std::move(variable));
  }
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  Variable& variable() const { return *value.variable(); }
  const Tensor& grad() const { return variable().grad; }

  std::string name;  // the path of modules to it, as "features.0.weight"
  Tensor value;      // read anew at each use: the arena moves it once
  bool decay;        // takes part in weight decay (matrices and filters do, biases and norms do not)
};

}  // namespace lockstep
