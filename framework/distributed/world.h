// The ranks of a program: started where nobody did, and joined.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "framework/core/context.h"
#include "framework/distributed/environment.h"
#include "framework/distributed/process_group.h"
#include "framework/distributed/store.h"

namespace lockstep {

// This rank among the others: a store to agree through and a group to compute with.
class World {
 public:
  // Collective: returns when all ranks have met. Errors are Store's and make_process_group's, and
  // std::invalid_argument where the ranks were not started with the same `options_text`, one line for each option.
  explicit World(const Environment& environment, const GroupOptions& options = {},
                 const std::string& options_text = {});

  int rank() const { return environment_.rank; }
  int size() const { return environment_.world_size; }
  const Environment& environment() const { return environment_; }
  ProcessGroup& group() { return *group_; }
  // Runs `body`; what it throws is told to the other ranks, whose waits then fail with it, and thrown on. So is what
  // keeps the constructor from making the group.
  void run(const std::function<void()>& body);

 private:
  Environment environment_;
  std::shared_ptr<Store> store_;  // null for one rank
  std::unique_ptr<ProcessGroup> group_;
};

// For main(): under a launcher (torchrun, mpirun, srun) runs `body` as the rank that it made this process; otherwise
// starts `ranks` copies of this program and waits for them. The body runs in a context of `options`, on a GPU of the
// rank's own whichever options.gpu says. Returns the exit code: 0, or that of the exception
// (framework/core/exit_codes.h), whose text goes to stderr.
int run_ranks(int ranks, char** argv, const std::function<void(World&)>& body, const ContextOptions& options = {},
              const GroupOptions& group_options = {});

}  // namespace lockstep
