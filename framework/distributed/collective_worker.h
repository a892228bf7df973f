// One thread that runs a group's collectives one after the other, in the order of issue. It turns an engine whose calls
// block into a group whose calls return at once.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "framework/distributed/process_group.h"

namespace lockstep {

class CollectiveWorker {
 public:
  // Runs one collective to its end, within the group's deadline; throws what went wrong.
  using Run = std::function<void(const Collective&)>;

  explicit CollectiveWorker(Run run);
  // Fails what has not been started and waits for what has.
  ~CollectiveWorker();

  Work issue(const Collective& collective);
  // What is queued or comes later fails with the first failure reported, which is returned. Does not disturb a
  // collective that is running.
  std::exception_ptr fail(std::exception_ptr failure);

 private:
  class Ticket;
  struct Entry {
    Collective collective;
    std::shared_ptr<Ticket> ticket;
  };

  void loop();

  Run run_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> queue_;
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep
