#include "framework/distributed/world.h"

#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <stdexcept>

#include "framework/core/error.h"
#include "framework/distributed/launcher.h"

namespace lockstep {
namespace {

std::shared_ptr<Store> join_store(const Environment& environment) {
  return environment.world_size > 1 ? std::make_shared<Store>(store_options(environment)) : nullptr;
}

}  // namespace

World::World(const Environment& environment, const GroupOptions& options)
    : environment_(environment),
      store_(join_store(environment)),
      group_(make_process_group("auto", environment, store_, options)) {}

void World::run(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    try {
      if (store_) store_->abort(error.what());
    } catch (const std::exception&) {
      // The store is gone too, which the others notice by themselves.
    }
    throw;
  }
}

int run_ranks(int ranks, char** argv, const std::function<void(World&)>& body) {
  int rank = 0;
  try {
    const Environment environment = detect_environment();
    if (environment.launcher == Launcher::none && ranks > 1) return launch(ranks, argv);
    rank = environment.rank;
    World world(environment);
    world.run([&] { body(world); });
    return 0;
  } catch (const std::invalid_argument& error) {
    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    return 2;
  } catch (const LinkContradiction& error) {
    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    return 3;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    return 1;
  }
}

}  // namespace lockstep
