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

}  // namespace

ParameterArena::ParameterArena(std::span<Parameter* const> order, const BucketCaps& caps) {
  expect(!order.empty(), "arena: expected at least one parameter");
  expect(caps.first_mib > 0 && caps.cap_mib > 0, "arena: expected bucket caps above 0 MiB, got {} and {}",
         caps.first_mib, caps.cap_mib);
  const DType dtype = order.front()->value.dtype();
  std::unordered_set<const Parameter*> seen;
  std::int64_t end = 0;
  std::int64_t bucket_bytes = 0;
  double cap_bytes = 0;
  for (Parameter* parameter : order) {
    expect(seen.insert(parameter).second, "arena: expected each parameter once, got {} twice", parameter->name);
    expect(parameter->value.dtype() == dtype, "arena: expected {} like the first parameter, got {} for {}",
           dtype_name(dtype), dtype_name(parameter->value.dtype()), parameter->name);
    if (buckets_.empty() || static_cast<double>(bucket_bytes) >= cap_bytes) {
      cap_bytes = (buckets_.empty() ? caps.first_mib : caps.cap_mib) * 1024 * 1024;
      bucket_bytes = 0;
      end = round_up(end, kBucketAlignment);
      buckets_.push_back({{end, 0}, slots_.size(), slots_.size()});
    }
    slots_.push_back({parameter, {end, parameter->value.numel()}});
    bucket_bytes += parameter->value.view().bytes();
    end = round_up(end + parameter->value.numel(), kChunk);
    buckets_.back().range.count = end - buckets_.back().range.offset;
    buckets_.back().end_slot = slots_.size();
  }

  {
    const MemoryScope purpose(MemoryPurpose::parameters);
    values_ = Tensor::zeros({end}, dtype);
  }
  {
    const MemoryScope purpose(MemoryPurpose::gradients);
    grads_ = Tensor::zeros({end}, dtype);
  }
  std::vector<std::uint8_t> decay(static_cast<std::size_t>(end / kChunk));
  for (const ArenaSlot& slot : slots_) {
    Parameter& parameter = *slot.parameter;
    const std::int64_t slot_end = slot.range.offset + slot.range.count;
    Tensor value = values_.slice(slot.range.offset, slot_end).reshape(parameter.value.shape());
    LOCKSTEP_DISPATCH(accumulate, context().exec(), parameter.value, GradView{value.view()});
    value.set_variable(parameter.value.variable());
    parameter.value = value;
    parameter.variable().grad = grads_.slice(slot.range.offset, slot_end).reshape(value.shape());
    for (std::int64_t at = slot.range.offset; at < slot_end; at += kChunk) {
      decay[static_cast<std::size_t>(at / kChunk)] = parameter.decay ? 1 : 0;
    }
  }
  decay_ = Tensor::from_host(std::span<const std::uint8_t>(decay), {end / kChunk});
  begin_step();
}

void ParameterArena::begin_step() {
  for (const ArenaSlot& slot : slots_) slot.parameter->variable().written = false;
}

}  // namespace lockstep
