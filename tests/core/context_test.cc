#include "framework/core/context.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "framework/core/tensor.h"
#include "kernels/dispatch.h"

namespace lockstep {
namespace {

TEST(Context, IsTheThreadsUntilTheScopeEnds) {
  Context& fallback = context();
  EXPECT_EQ(fallback.device(), DeviceType::cpu);
  Context outer(DeviceType::cpu, 2);
  const ContextScope outer_scope(outer);
  EXPECT_EQ(&context(), &outer);
  {
    Context inner(DeviceType::cpu, 1, DType::f64);
    const ContextScope inner_scope(inner);
    EXPECT_EQ(context().dtype(), DType::f64);
  }
  EXPECT_EQ(&context(), &outer);
}

TEST(Context, RefusesWhatItsDeviceCannotDo) {
  EXPECT_THROW(Context(DeviceType::cpu, 0), std::invalid_argument);
  EXPECT_THROW(Context(DeviceType::cpu, 1, DType::bf16), std::invalid_argument);
  if (!kernels::kHasCuda) {
    EXPECT_THROW(Context{DeviceType::cuda}, std::invalid_argument);
  }
}

TEST(Context, KernelsReadTheRandomStateAtOneAddress) {
  Context own;
  own.random = {.seed = 7, .step = 1, .sample_offset = 64};
  const RandomState* device = own.device_random();
  EXPECT_EQ(*device, own.random);
  own.random.step = 2;
  EXPECT_EQ(own.device_random(), device);
  EXPECT_EQ(*device, own.random);
}

TEST(Context, SynchronizesAtOnceOnACpu) {
  Context own;
  const ContextScope scope(own);
  const Tensor zeros = Tensor::zeros({3}, DType::i32);
  own.synchronize();
  EXPECT_EQ(zeros.to_host<std::int32_t>(), (std::vector<std::int32_t>{0, 0, 0}));
}

}  // namespace
}  // namespace lockstep
