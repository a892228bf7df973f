// A checkpoint read on one rank becomes the state of all.
#pragma once

#include <filesystem>
#include <span>

#include "framework/distributed/process_group.h"
#include "framework/train/checkpoint.h"

namespace lockstep {

// Rank 0 loads the newest good checkpoint of a run directory (or a single checkpoint) into the model and the tensors of
// its optimizer, where they are given, and gives them to the other ranks. Every rank returns the checkpoint's step.
// Errors are load_checkpoint's.
std::int64_t restore(const std::filesystem::path& directory, Module& model,
                     std::span<const NamedTensor> optimizer_state, ProcessGroup& group,
                     Surplus surplus = Surplus::refuse);

}  // namespace lockstep
