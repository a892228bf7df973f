// Overlap of communication with backward: a bucket of gradients is reduced as soon as the tape owes it no more writes,
// while backward goes on with the layers below.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "framework/autograd/tape.h"
#include "framework/distributed/process_group.h"
#include "framework/optim/parameter_arena.h"

namespace lockstep {

enum class Overlap : std::uint8_t {
  on,     // a bucket is launched when its gradients are complete
  off,    // all buckets are launched after backward
  naive,  // one blocking all-reduce for each parameter, after backward: for teaching and comparison
};

// What a step gives to all-reduces, range by range in their order.
std::vector<Range> reduced_ranges(const ParameterArena& arena, Overlap overlap);

struct BucketerOptions {
  Overlap overlap = Overlap::on;
  // Whether a parameter may get no gradient in a step; it then counts as zero. Otherwise that is an error: it is nearly
  // always a mistake in the model, and one that only some ranks make would leave the others waiting.
  bool allow_unused = false;
  // bf16 where the arena's gradients are f32: each bucket is rounded into a second flat buffer, summed over the ranks
  // there, and converted back. Without it gradients travel as they are.
  std::optional<DType> wire_dtype;
  // Called when the last gradient of a bucket is written, before its all-reduce is issued, and when it is under way:
  // then what is to follow it may be enqueued behind wait(bucket), on another stream. The last two in index order.
  std::function<void(std::size_t bucket)> on_ready, on_launch, on_launched;
};

// Sums the gradients of an arena over the ranks of a group, during the backward pass that it is given to:
//
//     tape.backward(loss, seed, &bucketer);
//     bucketer.finish();
//
// Invariant: buckets are launched in index order on every rank, whatever order their gradients are completed in, since
// collectives must be issued in the same order everywhere.
class Bucketer final : public GradientSink {
 public:
  Bucketer(const ParameterArena& arena, ProcessGroup& group, const BucketerOptions& options = {});
  // Waits for what is under way: the arena's memory belongs to the group until then.
  ~Bucketer() override;
  Bucketer(const Bucketer&) = delete;
  Bucketer& operator=(const Bucketer&) = delete;

  void begin(std::span<Parameter* const> expected) override;
  void ready(Parameter& parameter) override;
  // Launches what is left after backward. Afterwards wait() may be called.
  void flush();
  // Returns when bucket i is reduced (on a GPU: makes the compute stream wait). Rethrows a failure of the group. Once
  // for each bucket of a step.
  void wait(std::size_t bucket);
  // What carries bucket i since it was launched; none with Overlap::naive.
  const Work& work(std::size_t bucket) const { return buckets_[bucket].work; }
  // flush(), then wait() for every bucket.
  void finish();

  // What gradients are all-reduced as.
  DType wire_dtype() const { return (wire_.defined() ? wire_ : arena_.grads()).dtype(); }
  // What this rank gives to the all-reduces of a step.
  std::int64_t reduced_bytes() const;

 private:
  void complete(const Parameter& parameter);
  void launch_complete_buckets();
  // The sum over the ranks of a range of gradients, still to be cast back from the wire's type when its work is
  // finished.
  Work all_reduce(Range range, std::string_view label);
  void cast_back(Range range);

  struct BucketState {
    std::string label;
    std::size_t owed = 0;  // parameters whose gradients are not complete
    Work work;
  };

  const ParameterArena& arena_;
  ProcessGroup& group_;
  BucketerOptions options_;
  Tensor wire_;  // in the layout of the arena; undefined where gradients travel as they are
  std::vector<BucketState> buckets_;
  std::unordered_map<const Parameter*, std::size_t> bucket_of_;
  std::size_t next_to_launch_ = 0;
};

}  // namespace lockstep
