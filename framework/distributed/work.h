// A handle to a collective that may still be running.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace lockstep {

// Cheap to copy; all copies speak of the same collective. A default-made Work is finished.
class Work {
 public:
  using Clock = std::chrono::steady_clock;

  // What a backend implements.
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;
    virtual bool done() const = 0;
    virtual std::optional<Clock::time_point> finished_at() const = 0;
  };

  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  // Ended now, well or with a failure that wait() rethrows.
  static Work ended(std::exception_ptr failure = nullptr);

  // Returns when the result may be used (on a GPU: by the current compute stream), or rethrows why there is none.
  // Bounded by the group's deadline; may be called again.
  void wait() const {
    if (state_) state_->wait();
  }
  // Whether it has ended, well or badly; never blocks.
  bool done() const { return !state_ || state_->done(); }
  // When it ended, by the host's clock; empty while it runs and where the engine does not know.
  std::optional<Clock::time_point> finished_at() const { return state_ ? state_->finished_at() : std::nullopt; }

 private:
  std::shared_ptr<State> state_;
};

inline Work Work::ended(std::exception_ptr failure) {
  struct Ended final : State {
    explicit Ended(std::exception_ptr why) : failure(std::move(why)) {}
    void wait() override {
      if (failure) std::rethrow_exception(failure);
    }
    bool done() const override { return true; }
    std::optional<Clock::time_point> finished_at() const override { return at; }

    std::exception_ptr failure;
    Clock::time_point at = Clock::now();
  };
  return Work(std::make_shared<Ended>(std::move(failure)));
}

}  // namespace lockstep
