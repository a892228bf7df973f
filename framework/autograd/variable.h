// What the tape knows of a tensor that needs a gradient.
#pragma once

#include <memory>
#include <string>

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
  bool rectified = false;          // made by a ReLU: of its gradient only elements count where it is positive
  bool unrectified = false;        // some write of the gradient did not leave the others 0
  Parameter* parameter = nullptr;  // set for parameters, null for activations
};

// A named tensor that training changes. Held by shared_ptr: tied weights are one Parameter in two modules.
struct Parameter {
  // `initial` becomes the master. In a context of bf16, an f32 master gets a value of bf16.
  Parameter(std::string parameter_name, Tensor initial, bool weight_decay);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  Variable& variable() const { return *value.variable(); }
  const Tensor& grad() const { return variable().grad; }

  // value = master, rounded to nearest even. Whoever writes masters calls it, but for the optimizer, which writes both.
  void refresh_value() const;

  std::string name;  // the path of modules to it, as "features.0.weight"
  Tensor value;      // what forward reads; read anew at each use: the arena moves it once
  Tensor master;     // what is initialised, updated and saved: f32 where value is bf16, else the memory of value
  bool decay;        // takes part in weight decay (matrices and filters do, biases and norms do not)
};

}  // namespace lockstep
