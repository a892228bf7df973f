#include "framework/nn/module.h"

#include <unordered_set>

namespace lockstep {

// Calls visitor(module, prefix) for this module and all below, in order of registration.
template <class Visitor>
void Module::visit(const std::string& prefix, Visitor&& visitor) const {
  visitor(*this, prefix);
  for (const auto& [name, module] : modules_) module->visit(prefix + name + ".", visitor);
}

std::vector<Parameter*> Module::parameters() {
  std::vector<Parameter*> found;
  std::unordered_set<Parameter*> seen;
  visit("", [&](const Module& module, const std::string& prefix) {
    for (const auto& [name, parameter] : module.parameters_) {
      if (!seen.insert(parameter.get()).second) continue;
      parameter->name = prefix + name;
      found.push_back(parameter.get());
    }
  });
  return found;
}

std::vector<NamedBuffer> Module::buffers() const {
  std::vector<NamedBuffer> found;
  visit("", [&](const Module& module, const std::string& prefix) {
    for (const NamedBuffer& buffer : module.buffers_) found.push_back({prefix + buffer.name, buffer.value});
  });
  return found;
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& [name, module] : modules_) module->train(on);
}

std::shared_ptr<Parameter> Module::register_parameter(std::string name, Tensor initial, bool decay) {
  auto parameter = std::make_shared<Parameter>(name, std::move(initial), decay);
  register_parameter(std::move(name), parameter);
  return parameter;
}

void Module::register_parameter(std::string name, std::shared_ptr<Parameter> parameter) {
  parameters_.emplace_back(std::move(name), std::move(parameter));
}

void Module::register_buffer(std::string name, Tensor value) {
  buffers_.push_back({std::move(name), std::move(value)});
}

void Module::register_module(std::string name, Module& module) { modules_.emplace_back(std::move(name), &module); }

}  // namespace lockstep
