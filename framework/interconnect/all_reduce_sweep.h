// Times all-reduces of given sizes, by the conventions of nccl-tests: out of place and in place, checked.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/core/tensor.h"
#include "framework/distributed/process_group.h"

namespace lockstep {

struct AllReduceTest {
  DType dtype = DType::f32;  // f32 or bf16
  ReduceOp op = ReduceOp::sum;
  int iterations = 20;
  int warmup = 1;  // iterations before, not timed
  bool check = true;
};

struct AllReduceTimes {
  double us = 0.0;  // of one of many that are issued without waiting; mean over the ranks
  // Of single ones, on rank 0: from the end of one to the end of the next. On a GPU the compute stream waits for each
  // and each for it, which is some microseconds more, or what the host takes to enqueue one where that is longer.
  double min_us = 0.0;
  double median_us = 0.0;
  double max_us = 0.0;
  std::int64_t wrong = -1;  // elements, over all ranks; -1: not checked
};

struct AllReduceRow {
  std::int64_t bytes = 0;
  AllReduceTimes out_of_place, in_place;
};

// All functions are collective, in the current context, and every rank returns the same.
class AllReduceSweep {
 public:
  // Makes two buffers of `most_bytes`. The group must outlive it.
  AllReduceSweep(ProcessGroup& group, std::int64_t most_bytes, const AllReduceTest& test);

  // `bytes`: a multiple of the element's size, at most most_bytes.
  AllReduceRow measure(std::int64_t bytes);

 private:
  AllReduceTimes measure(std::int64_t count, bool in_place);
  std::int64_t wrong_elements(std::int64_t count, bool in_place);
  std::vector<double> over_ranks(std::vector<double> values);

  ProcessGroup& group_;
  AllReduceTest test_;
  Tensor in_, out_;
};

// Bus bandwidth in GB/s of an all-reduce of `bytes` in `us`: what each rank sends, 2 (n - 1) / n of the bytes, a
// second.
double all_reduce_busbw(std::int64_t bytes, double us, int ranks);

}  // namespace lockstep
