#include "framework/train/restore.h"

#include <string>
#include <vector>

#include "framework/core/context.h"
#include "framework/distributed/agreement.h"

namespace lockstep {

std::int64_t restore(const std::filesystem::path& directory, Module& model,
                     std::span<const NamedTensor> optimizer_state, ProcessGroup& group, Surplus surplus) {
  std::vector<NamedTensor> tensors = model_tensors(model);
  tensors.insert(tensors.end(), optimizer_state.begin(), optimizer_state.end());
  const std::string step = from_rank_0(group, "restored step", [&] {
    return std::to_string(load_checkpoint(find_latest(directory), tensors, surplus).step);
  });
  for (const NamedTensor& tensor : tensors) group.broadcast(tensor.value, 0, tensor.name).wait();
  for (const Parameter* parameter : model.parameters()) parameter->refresh_value();
  context().synchronize();
  group.check();
  return std::stoll(step);
}

}  // namespace lockstep
