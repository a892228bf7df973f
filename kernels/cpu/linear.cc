#include "kernels/linear.h"

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/gemm.h"

namespace lockstep::kernels {

void cpu::linear_forward(const ExecContext& exec, ConstView x, ConstView weight, ConstView bias, Activation activation,
                         View y) {
  with_float_type(x.dtype, [&]<class T>(T) {
    const std::int64_t depth = weight.shape[1];
    gemm<T>(exec, y.shape[0], y.shape[1], depth, {x.as<T>(), depth, 1}, {weight.as<T>(), 1, depth},
            bias.data == nullptr ? nullptr : bias.as<T>(), y.as<T>(), false);
  });
  if (activation == Activation::relu) relu_forward(exec, y, y);
}

void cpu::linear_backward(const ExecContext& exec, ConstView dy, ConstView x, ConstView weight, GradView dx,
                          GradView dweight, GradView dbias) {
  with_float_type(dy.dtype, [&]<class T>(T) {
    const std::int64_t rows = dy.shape[0];
    const std::int64_t outputs = weight.shape[0];
    const std::int64_t inputs = weight.shape[1];
    if (dx) {
      gemm<T>(exec, rows, inputs, outputs, {dy.as<T>(), outputs, 1}, {weight.as<T>(), inputs, 1}, nullptr,
              dx.view.as<T>(), dx.accumulate);
    }
    if (dweight) {
      gemm<T>(exec, outputs, inputs, rows, {dy.as<T>(), 1, outputs}, {x.as<T>(), inputs, 1}, nullptr,
              dweight.view.as<T>(), dweight.accumulate);
    }
    if (dbias) column_sums<T>(exec, dy.as<T>(), rows, outputs, dbias);
  });
  if (dx.unrectified != nullptr) relu_backward(exec, dx.view, x, {dx.view, false});
}

}  // namespace lockstep::kernels
