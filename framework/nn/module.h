// A model or a part of one: parameters, buffers and sub-modules under names.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/autograd/variable.h"
#include "framework/core/tensor.h"

namespace lockstep {

struct NamedBuffer {
  std::string name;
  Tensor value;
};

// Subclasses register their parts in the constructor and define a forward function of their own:
//
//     class Net : public Module {
//      public:
//       Net() : fc1_(784, 128), fc2_(128, 10) { register_module("fc1", fc1_); register_module("fc2", fc2_); }
//       Tensor forward(const Tensor& x) { return fc2_.forward(relu(fc1_.forward(x))); }
//      private:
//       Linear fc1_, fc2_;
//     };
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Every parameter once, in order of registration, this module's own before its sub-modules'. Each is named by the
  // first path that leads to it ("features.0.weight").
  std::vector<Parameter*> parameters();
  // State that is no parameter (running statistics), named in the same way.
  std::vector<NamedBuffer> buffers() const;

  // Training mode (the default) or evaluation mode, for this module and all below: dropout acts only in training.
  void train(bool on = true);
  bool training() const { return training_; }

 protected:
  std::shared_ptr<Parameter> register_parameter(std::string name, Tensor initial, bool decay);
  // Ties a parameter of another module to this one.
  void register_parameter(std::string name, std::shared_ptr<Parameter> parameter);
  void register_buffer(std::string name, Tensor value);
  // The sub-module must live as long as this module: a member, or owned by one.
  void register_module(std::string name, Module& module);

 private:
  template <class Visitor>
  void visit(const std::string& prefix, Visitor&& visitor) const;

  std::vector<std::pair<std::string, std::shared_ptr<Parameter>>> parameters_;
  std::vector<NamedBuffer> buffers_;
  std::vector<std::pair<std::string, Module*>> modules_;
  bool training_ = true;
};

}  // namespace lockstep
