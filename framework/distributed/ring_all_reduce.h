// All-reduce by hand, to be read, and to be measured beside the engines' own.
#pragma once

#include "framework/distributed/process_group.h"

namespace lockstep {

// tensor (any shape, f32) becomes the sum over all ranks, in place, by N - 1 + N - 1 steps around a ring. Cut into N
// chunks, each step sends one chunk to the next rank while one arrives from the rank before:
//   reduce-scatter  every chunk travels once around and grows by each rank's values; rank r ends with chunk r + 1 whole
//   all-gather      the whole chunks travel once around
// Each rank sends 2 (N-1)/N of the tensor's bytes, which is the least possible; so where the links are the limit, with
// a bandwidth of B bytes/s and a latency of L seconds a step, it takes 2 (N-1)/N bytes / B + 2 (N-1) L seconds, nearly
// the same for any number of ranks. (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", 2009.) Blocks until it is done; on a GPU the compute stream does. All ranks end with equal bits.
// Errors are those of send_recv.
void ring_all_reduce(ProcessGroup& group, View tensor);

}  // namespace lockstep
