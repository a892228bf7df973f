#include "framework/optim/parameter_arena.h"

#include <unordered_set>

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/memory_purpose.h"
#include "kernels/dispatch.h"
#include "kernels/elementwise.h"

namespace lockstep {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

Tensor flat_zeros(MemoryPurpose purpose, std::int64_t count, DType dtype) {
  const MemoryScope scope(purpose);
  return Tensor::zeros({count}, dtype);
}

}  // namespace

ParameterArena::ParameterArena(std::span<Parameter* const> order, const BucketCaps& caps,
                               std::optional<DType> grad_dtype) {
  expect(!order.empty(), "arena: expected at least one parameter");
  expect(caps.first_mib > 0 && caps.cap_mib > 0, "arena: expected bucket caps above 0 MiB, got {} and {}",
         caps.first_mib, caps.cap_mib);
  const DType master_dtype = order.front()->master.dtype();
  const DType value_dtype = order.front()->value.dtype();
  const DType gradients = grad_dtype.value_or(master_dtype);
  expect(gradients == master_dtype || (gradients == DType::bf16 && master_dtype == DType::f32),
         "arena: expected gradients of {} like the parameters, or of bf16 for parameters of f32, got {}",
         dtype_name(master_dtype), dtype_name(gradients));
  std::unordered_set<const Parameter*> seen;
  std::int64_t end = 0;
  std::int64_t bucket_bytes = 0;
  double cap_bytes = 0;
  for (Parameter* parameter : order) {
    expect(seen.insert(parameter).second, "arena: expected each parameter once, got {} twice", parameter->name);
    expect(parameter->master.dtype() == master_dtype && parameter->value.dtype() == value_dtype,
           "arena: expected {} read as {} like the first parameter, got {} read as {} for {}", dtype_name(master_dtype),
           dtype_name(value_dtype), dtype_name(parameter->master.dtype()), dtype_name(parameter->value.dtype()),
           parameter->name);
    if (buckets_.empty() || static_cast<double>(bucket_bytes) >= cap_bytes) {
      cap_bytes = (buckets_.empty() ? caps.first_mib : caps.cap_mib) * 1024 * 1024;
      bucket_bytes = 0;
      end = round_up(end, kBucketAlignment);
      buckets_.push_back({{end, 0}, slots_.size(), slots_.size()});
    }
    slots_.push_back({parameter, {end, parameter->value.numel()}});
    bucket_bytes += parameter->value.numel() * dtype_bytes(gradients);
    end = round_up(end + parameter->value.numel(), kChunk);
    buckets_.back().range.count = end - buckets_.back().range.offset;
    buckets_.back().end_slot = slots_.size();
  }

  masters_ = flat_zeros(MemoryPurpose::parameters, end, master_dtype);
  values_ = value_dtype == master_dtype ? masters_ : flat_zeros(MemoryPurpose::parameters, end, value_dtype);
  grads_ = flat_zeros(MemoryPurpose::gradients, end, gradients);
  std::vector<std::uint8_t> decay(static_cast<std::size_t>(end / kChunk));
  for (const ArenaSlot& slot : slots_) {
    Parameter& parameter = *slot.parameter;
    const auto place = [&](const Tensor& flat) { return slice(flat, slot.range).reshape(parameter.master.shape()); };
    const Tensor master = place(masters_);
    LOCKSTEP_DISPATCH(accumulate, context().exec(), parameter.master, GradView{master});
    parameter.master = master;
    Tensor value = place(values_);
    value.set_variable(parameter.value.variable());
    parameter.value = value;
    parameter.variable().grad = place(grads_);
    for (std::int64_t at = slot.range.offset; at < slot.range.offset + slot.range.count; at += kChunk) {
      decay[static_cast<std::size_t>(at / kChunk)] = parameter.decay ? 1 : 0;
    }
  }
  decay_ = Tensor::from_host(std::span<const std::uint8_t>(decay), {end / kChunk});
  refresh_values();
  begin_step();
}

void ParameterArena::begin_step() {
  for (const ArenaSlot& slot : slots_) slot.parameter->variable().written = false;
}

void ParameterArena::refresh_values() const {
  if (values_.dtype() == masters_.dtype()) return;
  LOCKSTEP_DISPATCH(accumulate, context().exec(), masters_, GradView{values_});
}

}  // namespace lockstep
