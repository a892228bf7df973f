#include "framework/train/restore.h"

#include <vector>

namespace lockstep {

std::int64_t restore(const std::filesystem::path& directory, std::span<const NamedTensor> tensors, ProcessGroup& group,
                     Surplus surplus) {
  std::vector<double> step{0};  // exact up to 2^53
  if (group.rank() == 0) {
    step[0] = static_cast<double>(load_checkpoint(find_latest(directory), tensors, surplus).step);
  }
  const Tensor shared_step = Tensor::from_host(std::span<const double>(step), {1});
  group.broadcast(shared_step, 0, "restored step").wait();
  for (const NamedTensor& tensor : tensors) group.broadcast(tensor.value, 0, tensor.name).wait();
  step = shared_step.to_host<double>();
  group.check();
  return static_cast<std::int64_t>(step[0]);
}

}  // namespace lockstep
