// Runs a row of the op table on drawn values, in a chosen type and the current context.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/support/op_cases.h"

namespace lockstep::testing {

// What a case is run on, in double precision: the same for every type and device.
struct OpValues {
  std::vector<std::vector<double>> inputs;
  std::vector<std::vector<std::int32_t>> indices;
  std::uint64_t weight_seed = 0;

  // The loss of a case is the sum of its output times these weights, of 0.5 to 1 and either sign.
  std::vector<double> weights(std::int64_t count) const;
  // With inputs that `dtype` holds exactly.
  OpValues rounded_to(DType dtype) const;
};

OpValues draw_values(const OpCase& op_case, std::uint64_t seed);

// A tensor of the current context, its values rounded to f64, f32 or bf16; and back.
Tensor to_tensor(const std::vector<double>& values, const Shape& shape, DType dtype);
std::vector<double> to_doubles(const Tensor& tensor);

// The output in the current context, computed in `dtype` (f64, f32 or bf16).
std::vector<double> run_forward(const OpCase& op_case, const OpValues& values, DType dtype);

struct OpResult {
  std::vector<double> output;
  std::vector<std::vector<double>> gradients;  // of the loss, for each input
};

// Output and gradients in the current context. The targets of the gradients hold NaN and are overwritten, or, where
// `initial` is given, hold these values and are added to. They are of type `gradient_dtype`, by default `dtype`.
OpResult run_backward(const OpCase& op_case, const OpValues& values, DType dtype,
                      const std::vector<std::vector<double>>* initial = nullptr,
                      std::optional<DType> gradient_dtype = std::nullopt);

}  // namespace lockstep::testing
