#include "tests/support/op_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/reduction.h"

namespace lockstep::testing {
namespace {

// To nearest, ties to even.
bfloat16 to_bf16(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  if (std::isnan(value)) return {0x7fc0};
  return {static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

double to_double(bfloat16 value) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16));
}

std::vector<Tensor> index_tensors(const OpCase& op_case, const OpValues& values) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < op_case.indices.size(); ++i) {
    tensors.push_back(Tensor::from_host<std::int32_t>(values.indices[i], op_case.indices[i].shape));
  }
  return tensors;
}

std::vector<double> draw_input(const OpInput& input, std::mt19937_64& random) {
  std::vector<double> values(static_cast<std::size_t>(input.shape.numel()));
  std::uniform_real_distribution<double> uniform(input.low, input.high);
  if (input.distinct) {
    // A shuffled grid, each value moved by less than the grid leaves room for.
    std::iota(values.begin(), values.end(), -0.5 * static_cast<double>(values.size()));
    std::shuffle(values.begin(), values.end(), random);
    std::uniform_real_distribution<double> move(-1e-3, 1e-3);
    for (double& value : values) value = 4e-3 * value + move(random);
    return values;
  }
  for (double& value : values) {
    do value = uniform(random);
    while (std::abs(value) < input.away_from_zero);
  }
  return values;
}

OpArguments arguments_of(const OpCase& op_case, const OpValues& values, DType dtype) {
  OpArguments arguments{.inputs = {}, .indices = index_tensors(op_case, values)};
  for (std::size_t i = 0; i < op_case.inputs.size(); ++i) {
    arguments.inputs.push_back(to_tensor(values.inputs[i], op_case.inputs[i].shape, dtype));
  }
  return arguments;
}

OpValues draw_once(const OpCase& op_case, std::mt19937_64& random) {
  OpValues values;
  for (const OpInput& input : op_case.inputs) values.inputs.push_back(draw_input(input, random));
  for (const OpIndices& indices : op_case.indices) {
    std::uniform_int_distribution<std::int32_t> uniform(0, indices.limit - 1);
    std::vector<std::int32_t>& drawn = values.indices.emplace_back(static_cast<std::size_t>(indices.shape.numel()));
    for (std::int32_t& value : drawn) value = uniform(random);
  }
  values.weight_seed = random();
  return values;
}
}  // namespace

Tensor to_tensor(const std::vector<double>& values, const Shape& shape, DType dtype) {
  if (dtype == DType::f64) return Tensor::from_host<double>(values, shape);
  if (dtype == DType::f32) return Tensor::from_host<float>(std::vector<float>(values.begin(), values.end()), shape);
  std::vector<bfloat16> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), to_bf16);
  return Tensor::from_host<bfloat16>(rounded, shape);
}

std::vector<double> to_doubles(const Tensor& tensor) {
  if (tensor.dtype() == DType::f64) return tensor.to_host<double>();
  std::vector<double> values(static_cast<std::size_t>(tensor.numel()));
  if (tensor.dtype() == DType::f32) {
    const std::vector<float> held = tensor.to_host<float>();
    std::copy(held.begin(), held.end(), values.begin());
  } else {
    const std::vector<bfloat16> held = tensor.to_host<bfloat16>();
    std::transform(held.begin(), held.end(), values.begin(), to_double);
  }
  return values;
}

std::vector<double> OpValues::weights(std::int64_t count) const {
  std::mt19937_64 random(weight_seed);
  std::uniform_real_distribution<double> uniform(-0.5, 0.5);
  std::vector<double> result(static_cast<std::size_t>(count));
  for (double& weight : result) {
    const double value = uniform(random);
    // Exact in bf16, so that every type computes the same loss.
    weight = to_double(to_bf16(value + std::copysign(0.5, value)));
  }
  return result;
}

OpValues OpValues::rounded_to(DType dtype) const {
  OpValues rounded = *this;
  for (std::vector<double>& input : rounded.inputs) {
    for (double& value : input) {
      value = dtype == DType::bf16 ? to_double(to_bf16(value)) : static_cast<double>(static_cast<float>(value));
    }
  }
  return rounded;
}

OpValues draw_values(const OpCase& op_case, std::uint64_t seed) {
  std::mt19937_64 random(seed ^ std::hash<std::string>{}(op_case.name));
  OpValues values = draw_once(op_case, random);
  if (!op_case.suits) return values;
  Context cpu(DeviceType::cpu, 1, DType::f64);
  const ContextScope scope(cpu);
  for (int tries = 0; !op_case.suits(arguments_of(op_case, values, DType::f64)); ++tries) {
    if (tries == 10000) throw std::logic_error(op_case.name + ": no arguments that suit it were drawn");
    values = draw_once(op_case, random);
  }
  return values;
}

std::vector<double> run_forward(const OpCase& op_case, const OpValues& values, DType dtype) {
  return to_doubles(op_case.forward(arguments_of(op_case, values, dtype)));
}

OpResult run_backward(const OpCase& op_case, const OpValues& values, DType dtype,
                      const std::vector<std::vector<double>>* initial, std::optional<DType> gradient_dtype) {
  std::vector<std::unique_ptr<Parameter>> parameters;
  OpArguments arguments{.inputs = {}, .indices = index_tensors(op_case, values)};
  for (std::size_t i = 0; i < op_case.inputs.size(); ++i) {
    const Shape& shape = op_case.inputs[i].shape;
    parameters.push_back(
        std::make_unique<Parameter>("input" + std::to_string(i), to_tensor(values.inputs[i], shape, dtype), false));
    const std::vector<double> nan(values.inputs[i].size(), std::numeric_limits<double>::quiet_NaN());
    Variable& variable = parameters.back()->variable();
    variable.grad = to_tensor(initial == nullptr ? nan : (*initial)[i], shape, gradient_dtype.value_or(dtype));
    variable.written = initial != nullptr;
    arguments.inputs.push_back(parameters.back()->value);
  }

  Tape tape;
  const Tensor output = op_case.forward(arguments);
  const Tensor weights = to_tensor(values.weights(output.numel()), output.shape(), output.dtype());
  OpResult result{.output = to_doubles(output), .gradients = {}};
  tape.backward(sum(multiply(output, weights)));
  for (const auto& parameter : parameters) result.gradients.push_back(to_doubles(parameter->grad()));
  return result;
}

}  // namespace lockstep::testing
