// What a rank of any command stands on: which rank it is, what it computes with, and the group it belongs to.
#pragma once

#include <memory>
#include <optional>

#include "cli/arguments.h"
#include "framework/core/context.h"
#include "framework/distributed/environment.h"
#include "framework/distributed/process_group.h"
#include "framework/distributed/store.h"

namespace lockstep::cli {

// The environment of this process, with --ranks taken into account: where no launcher started it, the returned world
// size is how many ranks are to be started. Throws std::invalid_argument for a device that is not there.
Environment resolve_environment(const DeviceArguments& arguments);

// True where this process is to start the ranks rather than to be one.
inline bool must_launch(const Environment& environment) {
  return environment.launcher == Launcher::none && environment.world_size > 1;
}

class RankSession {
 public:
  // Collective: returns when all ranks have met.
  RankSession(const Environment& environment, const DeviceArguments& arguments, std::uint64_t seed);

  const Environment& environment() const { return environment_; }
  ProcessGroup& group() { return *group_; }
  bool first() const { return environment_.rank == 0; }
  int threads() const { return context_.exec().threads; }
  // Throws on every rank unless all give the same text.
  void agree(const std::string& what, const std::string& text);

 private:
  Environment environment_;
  Context context_;
  ContextScope scope_;
  std::shared_ptr<Store> store_;  // null for one rank
  std::unique_ptr<ProcessGroup> group_;
};

}  // namespace lockstep::cli
