// Checkpoints of a run, each a directory <run>/checkpoints/step-00000120.
// A checkpoint is written and flushed under a temporary name and then renamed: whenever the process is killed or the
// power fails, what stands under such a name is complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "framework/nn/module.h"
#include "framework/optim/optimizer.h"
#include "framework/optim/parameter_arena.h"
#include "framework/train/checkpoint_format.h"

namespace lockstep {

// Master parameters and buffers under their names. Taken anew after the parameters moved into an arena.
std::vector<NamedTensor> model_tensors(Module& model);

// The optimizer's state parameter by parameter ("optimizer/momentum/fc1.weight"): the arena's layout depends on bucket
// sizes, which a resumed run may change.
std::vector<NamedTensor> optimizer_tensors(const ParameterArena& arena, const Optimizer& optimizer);

// Writes a checkpoint and then removes all but the last `keep` ones (0: keeps all); returns its path. A run directory
// has one writer. Checkpoints of this step or later, which another training left there or which were damaged, so that a
// resume passed them over, are set aside as "<name>.old" with a warning.
// Throws lockstep::Error where the disk is full or refuses: nothing half-written stays, older checkpoints do.
std::filesystem::path save_checkpoint(const std::filesystem::path& run_directory, const CheckpointInfo& info,
                                      std::span<const NamedTensor> tensors, int keep = 2);

// The newest checkpoint whose every byte is as it was written; a warning names each newer one of which that is not
// true. `directory` is a run directory or a single checkpoint. Throws std::invalid_argument where there is none.
std::filesystem::path find_latest(const std::filesystem::path& directory);

CheckpointInfo read_checkpoint_info(const std::filesystem::path& checkpoint);

// Tensors that the checkpoint has and the caller did not ask for: an optimizer's state where a model is only evaluated.
enum class Surplus : std::uint8_t { refuse, ignore };

// Copies the checkpoint's elements into the tensors given, whose addresses stay the same; a value that is a copy of its
// master is then to be refreshed, as restore() does.
// Throws std::invalid_argument that names the first tensor that is missing, surplus or of another shape or dtype,
// before anything is copied, and the tensor and offset where the file is truncated or damaged: then some are copied.
CheckpointInfo load_checkpoint(const std::filesystem::path& checkpoint, std::span<const NamedTensor> tensors,
                               Surplus surplus = Surplus::refuse);

}  // namespace lockstep
