#include "framework/distributed/data_parallel.h"

#include <algorithm>
#include <cstdint>
#include <sstream>

#include "framework/core/error.h"

namespace lockstep {
namespace {

// Rank 0's values; every rank must give as many. Through a tensor, since a group may only carry device memory.
template <class T>
std::vector<T> broadcast_values(ProcessGroup& group, const std::vector<T>& values, std::string_view what) {
  const Tensor tensor = Tensor::from_host(std::span(values), {static_cast<std::int64_t>(values.size())});
  group.broadcast(tensor, 0, what).wait();
  std::vector<T> received = tensor.to_host<T>();
  group.check();
  return received;
}

std::string first_difference(const std::string& expected, const std::string& got) {
  std::istringstream expected_lines(expected);
  std::istringstream got_lines(got);
  std::string expected_line;
  std::string got_line;
  do {
    if (!std::getline(expected_lines, expected_line)) expected_line = "nothing more";
    if (!std::getline(got_lines, got_line)) got_line = "nothing more";
  } while (expected_line == got_line && got_line != "nothing more");
  return fmt::format("rank 0 has {}, this rank has {}", expected_line, got_line);
}

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

void expect_agreement(ProcessGroup& group, const std::string& what, const std::string& text) {
  const std::vector<std::int32_t> length =
      broadcast_values(group, std::vector{static_cast<std::int32_t>(text.size())}, what);
  std::vector<std::uint8_t> bytes(text.begin(), text.end());
  bytes.resize(static_cast<std::size_t>(length[0]));
  bytes = broadcast_values(group, bytes, what);
  const std::string root_text(bytes.begin(), bytes.end());

  const bool same = text == root_text;
  const std::vector<std::int32_t> mine{same ? group.size() : group.rank()};
  const Tensor first_to_differ = Tensor::from_host(std::span(mine), {1});
  group.all_reduce(first_to_differ, ReduceOp::min, what).wait();
  const std::int32_t rank_to_differ = first_to_differ.to_host<std::int32_t>()[0];
  expect(same, "rank {}: expected the same {} on every rank: {}", group.rank(), what,
         first_difference(root_text, text));
  expect(rank_to_differ == group.size(), "rank {}: expected the same {} on every rank, but rank {} differs from rank 0",
         group.rank(), what, rank_to_differ);
}

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
  std::vector<std::int32_t> places;
  for (const Parameter* parameter : wanted) {
    places.push_back(
        static_cast<std::int32_t>(std::find(parameters.begin(), parameters.end(), parameter) - parameters.begin()));
  }
  places = broadcast_values(group, places, "parameter order");
  std::vector<Parameter*> order;
  for (const std::int32_t place : places) order.push_back(parameters[static_cast<std::size_t>(place)]);

  ParameterArena arena(order, caps, grad_dtype);
  group.broadcast(arena.masters(), 0, "parameters").wait();
  arena.refresh_values();
  for (const NamedBuffer& buffer : model.buffers()) group.broadcast(buffer.value, 0, buffer.name).wait();
  return arena;
}

}  // namespace lockstep
