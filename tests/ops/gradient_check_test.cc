// The gradient check itself: each of the ways in which a backward function goes wrong must be seen.
#include "tests/support/gradient_check.h"

#include <gtest/gtest.h>

#include "framework/autograd/tape.h"
#include "framework/core/context.h"
#include "framework/ops/elementwise.h"
#include "kernels/dispatch.h"
#include "kernels/elementwise.h"
#include "tests/support/random.h"

namespace lockstep::testing {
namespace {

enum class Fault { none, factor, one_element, always_overwrites, always_adds };

// y = 2 x with a backward that has a fault.
Tensor doubled(const Tensor& x, Fault fault) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  LOCKSTEP_DISPATCH(scale, context().exec(), x, 2.0, GradView{y, false});
  record("doubled", {&x}, {&y}, [fault, shape = x.shape()](Backward& backward) {
    GradView target = backward.target(0, shape, DType::f64);
    if (fault == Fault::always_overwrites) target.accumulate = false;
    if (fault == Fault::always_adds) target.accumulate = true;
    const double factor = fault == Fault::factor ? 2.00001 : 2.0;
    LOCKSTEP_DISPATCH(scale, context().exec(), backward.dy(), factor, target);
    if (fault == Fault::one_element) target.view.as<double>()[shape.numel() - 1] += 1e-3;
  });
  return y;
}

double worst_error(Fault fault, std::int64_t size, double output_scale = 1.0) {
  const OpCase op_case = {.name = "doubled", .inputs = {{{size}}}, .indices = {}, .forward = [=](const OpArguments& a) {
                            return scale(doubled(a.inputs[0], fault), output_scale);
                          }};
  return check_gradients(op_case, test_seed()).worst;
}

TEST(GradientCheck, PassesTheRightGradient) {
  for (const std::int64_t size : {1, 17, 1000}) EXPECT_LE(worst_error(Fault::none, size), 1e-9);
}

TEST(GradientCheck, SeesAWrongFactor) {
  for (const std::int64_t size : {1, 17, 1000}) EXPECT_GT(worst_error(Fault::factor, size), 1e-6);
}

TEST(GradientCheck, SeesAWrongFactorOfSmallGradients) {
  EXPECT_LE(worst_error(Fault::none, 1000, 1e-3), 1e-9);
  EXPECT_GT(worst_error(Fault::factor, 1000, 1e-3), 1e-6);
}

TEST(GradientCheck, SeesOneWrongElement) {
  for (const std::int64_t size : {1, 17, 1000}) EXPECT_GT(worst_error(Fault::one_element, size), 1e-6);
}

TEST(GradientCheck, SeesAddingWhereItShouldOverwrite) { EXPECT_GT(worst_error(Fault::always_adds, 17), 1e-6); }

TEST(GradientCheck, SeesOverwritingWhereItShouldAdd) { EXPECT_GT(worst_error(Fault::always_overwrites, 17), 1e-6); }

}  // namespace
}  // namespace lockstep::testing
