#include "framework/autograd/variable.h"

#include <utility>

#include "framework/core/context.h"
#include "kernels/dispatch.h"
#include "kernels/elementwise.h"

namespace lockstep {

Parameter::Parameter(std::string parameter_name, Tensor initial, bool weight_decay)
    : name(std::move(parameter_name)), value(initial), master(std::move(initial)), decay(weight_decay) {
  if (context().dtype() == DType::bf16 && master.dtype() == DType::f32) {
    value = Tensor::empty(master.shape(), DType::bf16);
    refresh_value();
  }
  auto variable = std::make_shared<Variable>();
  variable->shape = value.shape();
  variable->parameter = this;
  value.set_variable(std::move(variable));
}

void Parameter::refresh_value() const {
  if (value.dtype() == master.dtype()) return;
  LOCKSTEP_DISPATCH(accumulate, context().exec(), master, GradView{value});
}

}  // namespace lockstep
