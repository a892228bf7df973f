#include "framework/distributed/gpu_assignment.h"

#include <map>
#include <vector>

#include "framework/core/error.h"
#include "framework/distributed/agreement.h"
#include "framework/distributed/store.h"

namespace lockstep {

bool gpus_are_shared(const EnvironmentLookup& lookup) {
  const std::string value = lookup("LOCKSTEP_SHARE_GPUS").value_or("0");
  expect(value == "0" || value == "1", "LOCKSTEP_SHARE_GPUS: expected 0 or 1, got '{}'", value);
  return value == "1";
}

int gpu_of_rank(const Environment& environment, int visible) {
  if (environment.local_world_size <= visible) return environment.local_rank;
  if (visible > 0 && gpus_are_shared()) return environment.local_rank % visible;
  const bool own_launcher = environment.launcher == Launcher::none || environment.launcher == Launcher::lockstep;
  expect(
      visible == 1 && !own_launcher,
      "GPUs: expected at most {} ranks on this host, one for each GPU that is visible (CUDA_VISIBLE_DEVICES), got {}; "
      "start fewer ranks, use --device cpu, or try them out on shared GPUs with LOCKSTEP_SHARE_GPUS=1",
      visible, environment.local_world_size);
  return 0;
}

void expect_own_gpu(Store& store, const std::string& uuid, const std::string& description) {
  const std::string shared = gpus_are_shared() ? "1" : "0";
  // The first that ranks on GPUs wait for: one of them may still read its data.
  const std::vector<std::string> all_shared = store.gather("gpus shared", shared, kAgreementTime);
  for (int rank = 0; rank < store.size(); ++rank) {
    const std::string& theirs = all_shared[static_cast<std::size_t>(rank)];
    expect(theirs == all_shared.front(),
           "rank {}: expected the same LOCKSTEP_SHARE_GPUS on every rank, got {} on rank 0 and {} on rank {}; give it "
           "to all of them (mpirun -x LOCKSTEP_SHARE_GPUS)",
           store.rank(), all_shared.front(), theirs, rank);
  }
  if (shared == "1") return;
  const std::vector<std::string> uuids = store.gather("gpu", uuid);
  std::map<std::string, int> owners;
  for (int rank = 0; rank < store.size(); ++rank) {
    const std::string& theirs = uuids[static_cast<std::size_t>(rank)];
    const auto [owner, first] = owners.emplace(theirs, rank);
    expect(first,
           "rank {}: expected a GPU of its own for every rank, but ranks {} and {} are both on {}; this rank is on "
           "{} {}; start fewer ranks, or check CUDA_VISIBLE_DEVICES and LOCAL_RANK",
           store.rank(), owner->second, rank, theirs, description, uuid);
  }
}

}  // namespace lockstep
