#include "framework/train/restore.h"

#include <vector>

namespace lockstep {

std::int64_t restore(const std::filesystem::path& directory, Module& model,
                     std::span<const NamedTensor> optimizer_state, ProcessGroup& group, Surplus surplus) {
  std::vector<NamedTensor> tensors = model_tensors(model);
  tensors.insert(tensors.end(), optimizer_state.begin(), optimizer_state.end());
  std::vector<double> step{0};  // exact up to 2^53
  if (group.rank() == 0) {
    step[0] = static_cast<double>(load_checkpoint(find_latest(directory), tensors, surplus).step);
  }
  const Tensor shared_step = Tensor::from_host(std::span<const double>(step), {1});
  group.broadcast(shared_step, 0, "restored step").wait();
  for (const NamedTensor& tensor : tensors) group.broadcast(tensor.value, 0, tensor.name).wait();
  for (const Parameter* parameter : model.parameters()) parameter->refresh_value();
  step = shared_step.to_host<double>();
  group.check();
  return static_cast<std::int64_t>(step[0]);
}

}  // namespace lockstep
