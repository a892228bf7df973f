#include "framework/distributed/collective_worker.h"

#include <utility>

#include "framework/core/error.h"

namespace lockstep {

class CollectiveWorker::Ticket final : public Work::State {
 public:
  void finish(std::exception_ptr failure) {
    {
      const std::lock_guard lock(mutex_);
      finished_at_ = Work::Clock::now();
      failure_ = std::move(failure);
    }
    finished_.notify_all();
  }

  // Needs no deadline of its own: the worker ends every ticket, and each run ends by the group's deadline.
  void wait() override {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return finished_at_.has_value(); });
    if (failure_) std::rethrow_exception(failure_);
  }

  bool done() const override { return finished_at().has_value(); }

  std::optional<Work::Clock::time_point> finished_at() const override {
    const std::lock_guard lock(mutex_);
    return finished_at_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable finished_;
  std::optional<Work::Clock::time_point> finished_at_;
  std::exception_ptr failure_;
};

CollectiveWorker::CollectiveWorker(Run run) : run_(std::move(run)), thread_([this] { loop(); }) {}

CollectiveWorker::~CollectiveWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!failure_) failure_ = std::make_exception_ptr(Error("process group: destroyed before its work was finished"));
  }
  changed_.notify_all();
  thread_.join();
}

Work CollectiveWorker::issue(const Collective& collective) {
  auto ticket = std::make_shared<Ticket>();
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({collective, ticket});
  }
  changed_.notify_all();
  return Work(std::move(ticket));
}

std::exception_ptr CollectiveWorker::fail(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(failure);
  return failure_;
}

void CollectiveWorker::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Entry entry = std::move(queue_.front());
    queue_.pop_front();
    std::exception_ptr failure = failure_;
    lock.unlock();
    if (!failure) {
      try {
        run_(entry.collective);
      } catch (...) {
        failure = fail(std::current_exception());
      }
    }
    entry.ticket->finish(failure);
    lock.lock();
  }
}

}  // namespace lockstep
