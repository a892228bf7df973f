#include "framework/distributed/bucketer.h"

#include <algorithm>
#include <unordered_set>

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/memory_purpose.h"
#include "framework/core/profile_range.h"
#include "kernels/dispatch.h"
#include "kernels/elementwise.h"

namespace lockstep {

std::vector<Range> reduced_ranges(const ParameterArena& arena, Overlap overlap) {
  std::vector<Range> ranges;
  if (overlap == Overlap::naive) {
    for (const ArenaSlot& slot : arena.slots()) ranges.push_back(slot.range);
  } else {
    for (const Bucket& bucket : arena.buckets()) ranges.push_back(bucket.range);
  }
  return ranges;
}

Bucketer::Bucketer(const ParameterArena& arena, ProcessGroup& group, const BucketerOptions& options)
    : arena_(arena), group_(group), options_(options), buckets_(arena.buckets().size()) {
  if (options.wire_dtype && *options.wire_dtype != arena.grads().dtype()) {
    expect(*options.wire_dtype == DType::bf16 && arena.grads().dtype() == DType::f32,
           "bucketer: expected gradients of f32 to travel as bf16, got {} as {}", dtype_name(arena.grads().dtype()),
           dtype_name(*options.wire_dtype));
    const MemoryScope purpose(MemoryPurpose::communication);
    wire_ = Tensor::empty(arena.grads().shape(), *options.wire_dtype);
    // Here, so that a GPU loads this kernel before any bucket is under way.
    LOCKSTEP_DISPATCH(accumulate, context().exec(), arena.grads(), GradView{wire_});
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = arena_.buckets()[i];
    for (std::size_t slot = bucket.first_slot; slot < bucket.end_slot; ++slot) {
      bucket_of_[arena_.slots()[slot].parameter] = i;
    }
    buckets_[i].label = fmt::format("bucket {} from {}", i, arena_.slots()[bucket.first_slot].parameter->name);
  }
}

Bucketer::~Bucketer() {
  for (const BucketState& bucket : buckets_) {
    try {
      bucket.work.wait();
    } catch (const std::exception&) {
      // Whoever waited for this bucket has been told; here it only matters that it ended.
    }
  }
}

void Bucketer::begin(std::span<Parameter* const> expected) {
  next_to_launch_ = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    buckets_[i].owed = arena_.buckets()[i].end_slot - arena_.buckets()[i].first_slot;
    buckets_[i].work = {};
  }
  const std::unordered_set<const Parameter*> writes(expected.begin(), expected.end());
  for (const Parameter* parameter : expected) {
    expect(bucket_of_.contains(parameter), "backward: {} is not in the arena; expected every parameter in it",
           parameter->name);
  }
  std::string unused;
  for (const ArenaSlot& slot : arena_.slots()) {
    if (writes.contains(slot.parameter)) continue;
    // An earlier micro-step may have written it; if none did, its slot still holds the last step's gradient.
    if (!slot.parameter->variable().written) {
      unused += (unused.empty() ? "" : ", ") + slot.parameter->name;
      slot.parameter->grad().fill_zero();
    }
    complete(*slot.parameter);
  }
  expect(options_.allow_unused || unused.empty(),
         "backward: these parameters got no gradient in this step: {}; use them in the loss, or set allow_unused",
         unused);
  if (options_.overlap == Overlap::on) launch_complete_buckets();
}

void Bucketer::ready(Parameter& parameter) {
  complete(parameter);
  if (options_.overlap == Overlap::on) launch_complete_buckets();
}

void Bucketer::complete(const Parameter& parameter) {
  const std::size_t bucket = bucket_of_.at(&parameter);
  if (--buckets_[bucket].owed == 0 && options_.on_ready) options_.on_ready(bucket);
}

void Bucketer::launch_complete_buckets() {
  while (next_to_launch_ < buckets_.size() && buckets_[next_to_launch_].owed == 0) {
    BucketState& bucket = buckets_[next_to_launch_];
    const ProfileRange range(bucket.label.c_str());
    if (options_.on_launch) options_.on_launch(next_to_launch_);
    bucket.work = all_reduce(arena_.buckets()[next_to_launch_].range, bucket.label);
    if (options_.on_launched) options_.on_launched(next_to_launch_);
    ++next_to_launch_;
  }
}

Work Bucketer::all_reduce(Range range, std::string_view label) {
  const Tensor gradients = slice(arena_.grads(), range);
  if (!wire_.defined()) return group_.all_reduce(gradients, ReduceOp::sum, label);
  const Tensor wire = slice(wire_, range);
  LOCKSTEP_DISPATCH(accumulate, context().exec(), gradients, GradView{wire});
  return group_.all_reduce(wire, ReduceOp::sum, label);
}

void Bucketer::cast_back(Range range) {
  if (!wire_.defined()) return;
  LOCKSTEP_DISPATCH(accumulate, context().exec(), slice(wire_, range), GradView{slice(arena_.grads(), range)});
}

void Bucketer::flush() {
  const bool complete =
      std::all_of(buckets_.begin(), buckets_.end(), [](const BucketState& bucket) { return bucket.owed == 0; });
  if (!complete) throw std::logic_error("bucketer: backward ended before every gradient was complete");
  if (options_.overlap == Overlap::naive && next_to_launch_ == 0) {
    for (std::size_t i = 0; options_.on_launch && i < buckets_.size(); ++i) options_.on_launch(i);
    for (const ArenaSlot& slot : arena_.slots()) {
      all_reduce(slot.range, slot.parameter->name).wait();
      cast_back(slot.range);
    }
    for (; next_to_launch_ < buckets_.size(); ++next_to_launch_) {
      if (options_.on_launched) options_.on_launched(next_to_launch_);
    }
  }
  launch_complete_buckets();
}

void Bucketer::wait(std::size_t bucket) {
  buckets_[bucket].work.wait();
  if (options_.overlap != Overlap::naive) cast_back(arena_.buckets()[bucket].range);
}

std::int64_t Bucketer::reduced_bytes() const {
  std::int64_t count = 0;
  for (const Range& range : reduced_ranges(arena_, options_.overlap)) count += range.count;
  return count * dtype_bytes(wire_dtype());
}

void Bucketer::finish() {
  flush();
  for (std::size_t i = 0; i < buckets_.size(); ++i) wait(i);
}

}  // namespace lockstep
