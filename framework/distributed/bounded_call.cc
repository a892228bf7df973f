#include "framework/distributed/bounded_call.h"

#include <future>
#include <thread>
#include <utility>

namespace lockstep {

bool run_bounded(std::function<void()> call, std::chrono::milliseconds limit, const std::function<bool()>& give_up) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::packaged_task<void()> task(std::move(call));
  std::future<void> ended = task.get_future();
  std::thread thread(std::move(task));
  while (ended.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    if (std::chrono::steady_clock::now() >= deadline || give_up()) {
      thread.detach();
      return false;
    }
  }
  thread.join();
  ended.get();
  return true;
}

}  // namespace lockstep
