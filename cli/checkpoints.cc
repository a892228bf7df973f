#include "cli/checkpoints.h"

#include "framework/core/error.h"

namespace lockstep::cli {

CheckpointInfo checkpoint_of(const std::string& option, const std::string& directory, const std::string& model) {
  CheckpointInfo info = read_checkpoint_info(find_latest(directory));
  expect(info.model == model, "{} {}: expected a checkpoint of {}, got one of {}", option, directory, model,
         info.model);
  return info;
}

}  // namespace lockstep::cli
