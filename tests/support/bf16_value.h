// Parameters as a context of bf16 makes them, where there is no GPU to have one on.
#pragma once

#include "framework/autograd/variable.h"

namespace lockstep::testing {

// From now on forward reads a copy of the master in bf16.
inline void read_as_bf16(Parameter& parameter) {
  Tensor copy = Tensor::empty(parameter.master.shape(), DType::bf16);
  copy.set_variable(parameter.value.variable());
  parameter.value = copy;
  parameter.refresh_value();
}

}  // namespace lockstep::testing
