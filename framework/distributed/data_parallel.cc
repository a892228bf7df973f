#include "framework/distributed/data_parallel.h"

#include <algorithm>
#include <cstdint>
#include <sstream>

#include "framework/core/error.h"

namespace lockstep {
namespace {

std::string describe(Module& model, std::optional<DType> grad_dtype) {
  std::string text = fmt::format("gradients {}\n", grad_dtype ? dtype_name(*grad_dtype) : "like the parameters");
  for (const Parameter* parameter : model.parameters()) {
    const DType master = parameter->master.dtype();
    const DType value = parameter->value.dtype();
    text += fmt::format("parameter {} {} {}{}{}\n", parameter->name, parameter->master.shape().to_string(),
                        dtype_name(master), value == master ? "" : fmt::format(", read as {}", dtype_name(value)),
                        parameter->decay ? "" : ", not decayed");
  }
  for (const NamedBuffer& buffer : model.buffers()) {
    text += fmt::format("buffer {} {} {}\n", buffer.name, buffer.value.shape().to_string(),
                        dtype_name(buffer.value.dtype()));
  }
  return text;
}

}  // namespace

ParameterArena make_replicas(Module& model, std::span<Parameter* const> gradient_order, ProcessGroup& group,
                             const BucketCaps& caps, std::optional<DType> grad_dtype) {
  expect_agreement(group, "model", describe(model, grad_dtype));

  // An order is exchanged as places in parameters(), which the agreement makes the same everywhere.
  const std::vector<Parameter*> parameters = model.parameters();
  std::vector<Parameter*> wanted(gradient_order.begin(), gradient_order.end());
  for (Parameter* parameter : parameters) {
    if (std::find(wanted.begin(), wanted.end(), parameter) == wanted.end()) wanted.push_back(parameter);
  }
  expect(wanted.size() == parameters.size(),
         "make_replicas: the gradient order names a parameter that is not of the model");
  const std::string places = from_rank_0(group, "parameter order", [&] {
    std::string text;
    for (const Parameter* parameter : wanted) {
      text += fmt::format("{} ", std::find(parameters.begin(), parameters.end(), parameter) - parameters.begin());
    }
    return text;
  });
  std::vector<Parameter*> order;
  std::istringstream stream(places);
  for (std::size_t place = 0; stream >> place;) order.push_back(parameters[place]);

  ParameterArena arena(order, caps, grad_dtype);
  group.broadcast(arena.masters(), 0, "parameters").wait();
  arena.refresh_values();
  for (const NamedBuffer& buffer : model.buffers()) group.broadcast(buffer.value, 0, buffer.name).wait();
  return arena;
}

}  // namespace lockstep
