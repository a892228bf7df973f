// All parameters of a model in one flat buffer, their gradients in a second of the same layout, and in bf16 training
// the copies that forward reads in a third.
//
// Gradients are written straight into their buffer, so that a bucket of them is reduced without being copied together
// first, and one optimizer kernel updates any range.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "framework/autograd/variable.h"
#include "framework/core/tensor.h"

namespace lockstep {

// A range of elements of the arena.
struct Range {
  std::int64_t offset = 0;
  std::int64_t count = 0;
};

// That range of a flat tensor in the arena's layout.
inline Tensor slice(const Tensor& flat, Range range) { return flat.slice(range.offset, range.offset + range.count); }

struct ArenaSlot {
  Parameter* parameter = nullptr;
  Range range;
};

// Neighbouring slots whose gradients are reduced together.
struct Bucket {
  Range range;  // up to the end of the last slot's chunk
  std::size_t first_slot = 0;
  std::size_t end_slot = 0;
};

// A bucket is closed as soon as its gradients take this much. The first is smaller, so that communication starts early.
struct BucketCaps {
  double first_mib = 1.0;
  double cap_mib = 25.0;
};

class ParameterArena {
 public:
  // Each parameter starts on a chunk, and a chunk either takes part in weight decay or does not: one optimizer launch
  // serves both kinds.
  static constexpr std::int64_t kChunk = 1024;
  // Each bucket starts on a multiple of this, whatever the number of ranks, so that the blocks in which a gradient norm
  // is summed never lie across two. What is reduced of it ends with its last chunk, not here: the padding behind would
  // be 8 % of a small model's bytes.
  static constexpr std::int64_t kBucketAlignment = 65536;

  // Moves the parameters, each listed once, into the arena in the given order; all masters must have one dtype, and so
  // must all values. From then on Parameter::value, Parameter::master and Parameter::grad() are slices of the arena.
  // The parameters must outlive it. grad_dtype: that of the masters, which is the default, or bf16 beside masters of
  // f32.
  explicit ParameterArena(std::span<Parameter* const> order, const BucketCaps& caps = {},
                          std::optional<DType> grad_dtype = std::nullopt);

  std::span<const ArenaSlot> slots() const { return slots_; }
  std::span<const Bucket> buckets() const { return buckets_; }
  // From 0 to the end of the last bucket, with the padding between buckets: more than what is reduced.
  Range whole() const { return {0, buckets_.back().range.offset + buckets_.back().range.count}; }

  // Flat tensors of whole().count elements. The padding of all is zero and stays so. Where forward reads the masters
  // themselves, values() is the same tensor.
  const Tensor& masters() const { return masters_; }
  const Tensor& values() const { return values_; }
  const Tensor& grads() const { return grads_; }
  // u8, one for each chunk: 1 where the chunk is decayed.
  const Tensor& decay() const { return decay_; }

  // Starts a step: the next gradient write of each parameter overwrites what the last step left.
  void begin_step();
  // Parameter::refresh_value() of all of them at once.
  void refresh_values() const;

 private:
  std::vector<ArenaSlot> slots_;
  std::vector<Bucket> buckets_;
  Tensor masters_, values_, grads_, decay_;
};

}  // namespace lockstep
