// The checkpoints that --checkpoint and --resume name.
#pragma once

#include <string>

#include "framework/train/checkpoint.h"

namespace lockstep::cli {

// What the newest good checkpoint of `directory` says of itself. Throws std::invalid_argument, naming `option`, where
// there is none or where it is of another model.
CheckpointInfo checkpoint_of(const std::string& option, const std::string& directory, const std::string& model);

}  // namespace lockstep::cli
