// Makes every rank of a group hold the same model, laid out in the same way.
#pragma once

#include <optional>
#include <span>

#include "framework/distributed/agreement.h"
#include "framework/distributed/process_group.h"
#include "framework/nn/module.h"
#include "framework/optim/parameter_arena.h"

namespace lockstep {

// Checks that all ranks built the same model (names, shapes, types, decay), moves its parameters into an arena in rank
// 0's gradient order and gives every rank rank 0's parameters and buffers.
//
// gradient_order: what Tape::gradient_order returned for a first forward pass of this rank. Parameters that it lacks
// come last, in order of registration. caps and grad_dtype: the arena's.
ParameterArena make_replicas(Module& model, std::span<Parameter* const> gradient_order, ProcessGroup& group,
                             const BucketCaps& caps = {}, std::optional<DType> grad_dtype = std::nullopt);

}  // namespace lockstep
