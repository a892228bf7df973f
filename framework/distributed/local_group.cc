#include "framework/distributed/local_group.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "framework/core/context.h"
#include "framework/core/device_copy.h"
#include "framework/core/error.h"
#include "framework/distributed/collective_worker.h"
#include "framework/distributed/reduce.h"

namespace lockstep {
namespace {

using Kind = Collective::Kind;
using Clock = std::chrono::steady_clock;

std::byte* at(const View& view, std::int64_t element) {
  return static_cast<std::byte*>(view.data) + element * dtype_bytes(view.dtype);
}
const std::byte* at(const ConstView& view, std::int64_t element) {
  return static_cast<const std::byte*>(view.data) + element * dtype_bytes(view.dtype);
}

// In the memory of the current context's device: one rank alone may be on a GPU. The threads of several have no
// context.
void copy_elements(const std::byte* from, std::byte* to, std::int64_t count, DType dtype) {
  copy_on_device(context().device(), to, from, static_cast<std::size_t>(count * dtype_bytes(dtype)));
}

bool agree(const Collective& a, const Collective& b) {
  return a.kind == b.kind && a.op == b.op && a.root == b.root && a.in.dtype == b.in.dtype &&
         a.in.numel() == b.in.numel();
}

// Where the ranks meet. A collective has three parts: all arrive with what they bring (bounded by the deadline, and
// checked), each rank computes its own part of the result straight from the others' memory, and all leave together, so
// that nobody's memory is taken back while another rank still reads it.
class Meeting {
 public:
  Meeting(int size, std::chrono::milliseconds timeout)
      : timeout_(timeout), members_(static_cast<std::size_t>(size)), letters_(members_.size() * members_.size()) {}

  void run(int rank, const Collective& collective) {
    if (collective.kind == Kind::send_recv) return exchange(rank, collective);
    arrive(rank, collective);
    compute(rank, collective);
    leave();
  }

  void fail(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    fail_locked(reason);
  }

  void depart(int rank) {
    {
      const std::lock_guard lock(mutex_);
      members_[index(rank)].departed = true;
    }
    changed_.notify_all();
  }

 private:
  struct Member {
    const Collective* brings = nullptr;  // set from arrival until the last rank has arrived at the next collective
    bool arrived = false;
    bool departed = false;
  };
  struct Letter {
    enum class State : std::uint8_t { none, posted, read, taken };
    State state = State::none;
    const Collective* from = nullptr;
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  int size() const { return static_cast<int>(members_.size()); }

  void fail_locked(const std::string& reason) {
    if (!failure_) failure_ = reason;
    changed_.notify_all();
  }

  // Blocks until `ready`; fails for all when the deadline passes or a rank of `missing()` has departed.
  template <class Ready, class Missing>
  void await(std::unique_lock<std::mutex>& lock, int rank, const Collective& collective, Ready ready, Missing missing) {
    const auto departed = [&]() -> std::optional<int> {
      if (members_[index(rank)].departed) return rank;
      for (const int other : missing()) {
        if (members_[index(other)].departed) return other;
      }
      return std::nullopt;
    };
    const bool in_time = changed_.wait_for(lock, timeout_, [&] { return ready() || failure_ || departed(); });
    if (ready()) return;
    if (const std::optional<int> gone = departed(); gone && !failure_) {
      fail_locked(fmt::format("local group: {} on rank {} needs rank {}, which has left the group",
                              collective.to_string(), rank, *gone));
    } else if (!in_time) {
      fail_locked(fmt::format("local group: {} on rank {} waited {} ms for rank(s) {}", collective.to_string(), rank,
                              timeout_.count(), fmt::join(missing(), ", ")));
    }
    throw Error(*failure_);
  }

  void arrive(int rank, const Collective& collective) {
    std::unique_lock lock(mutex_);
    if (failure_) throw Error(*failure_);
    members_[index(rank)].brings = &collective;
    members_[index(rank)].arrived = true;
    const std::int64_t round = round_;
    if (++arrived_ == size()) {
      check_agreement();
      arrived_ = 0;
      computing_ = size();
      for (Member& member : members_) member.arrived = false;
      ++round_;
      changed_.notify_all();
    }
    await(
        lock, rank, collective, [&] { return round_ != round; },
        [&] {
          std::vector<int> missing;
          for (int other = 0; other < size(); ++other) {
            if (!members_[index(other)].arrived) missing.push_back(other);
          }
          return missing;
        });
  }

  void check_agreement() {
    const Collective& first = *members_[0].brings;
    for (int rank = 1; rank < size(); ++rank) {
      const Collective& other = *members_[index(rank)].brings;
      if (agree(first, other)) continue;
      fail_locked(
          fmt::format("local group: rank 0 issued {}, rank {} issued {}; every rank must issue the same collectives in "
                      "the same order",
                      first.to_string(), rank, other.to_string()));
      throw Error(*failure_);
    }
  }

  void compute(int rank, const Collective& collective) const {
    const std::int64_t count = collective.in.numel();
    switch (collective.kind) {
      case Kind::all_reduce: {
        const std::int64_t begin = count * rank / size();
        const std::int64_t length = count * (rank + 1) / size() - begin;
        std::byte* result = at(collective.out, begin);
        reduce(collective, begin, length, result);
        for (const Member& member : members_) {
          copy_elements(result, at(member.brings->out, begin), length, collective.in.dtype);
        }
        break;
      }
      case Kind::broadcast:
        copy_elements(at(members_[index(collective.root)].brings->in, 0), at(collective.out, 0), count,
                      collective.in.dtype);
        break;
      case Kind::all_gather:
        for (int other = 0; other < size(); ++other) {
          copy_elements(at(members_[index(other)].brings->in, 0), at(collective.out, other * count), count,
                        collective.in.dtype);
        }
        break;
      case Kind::reduce_scatter:
        reduce(collective, rank * collective.out.numel(), collective.out.numel(), at(collective.out, 0));
        break;
      case Kind::send_recv:
      case Kind::barrier:
        break;
    }
  }

  void reduce(const Collective& collective, std::int64_t begin, std::int64_t length, std::byte* result) const {
    if (size() == 1) return copy_elements(at(collective.in, begin), result, length, collective.in.dtype);
    std::vector<const void*> inputs;
    for (const Member& member : members_) inputs.push_back(at(member.brings->in, begin));
    reduce_elements(collective.in.dtype, collective.op, inputs, result, length);
  }

  // Needs no deadline: everyone has arrived and only arithmetic is left.
  void leave() {
    std::unique_lock lock(mutex_);
    const std::int64_t round = round_;
    if (--computing_ == 0) {
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round; });
  }

  void exchange(int rank, const Collective& collective) {
    using State = Letter::State;
    std::unique_lock lock(mutex_);
    if (failure_) throw Error(*failure_);
    Letter* sent = nullptr;
    if (collective.dst >= 0) {
      sent = &letters_[index(rank) * members_.size() + index(collective.dst)];
      *sent = {State::posted, &collective};
      changed_.notify_all();
    }
    if (collective.src >= 0) {
      // After a failure a letter may be from a sender that has given up and taken its memory back.
      Letter& letter = letters_[index(collective.src) * members_.size() + index(rank)];
      await(
          lock, rank, collective, [&] { return letter.state == State::posted && !failure_; },
          [&] { return std::vector<int>{collective.src}; });
      receive(lock, rank, collective, letter);
    }
    if (sent != nullptr) {
      await(
          lock, rank, collective, [&] { return sent->state == State::read || sent->state == State::taken; },
          [&] { return std::vector<int>{collective.dst}; });
      changed_.wait(lock, [&] { return sent->state == State::taken; });
      sent->state = State::none;
    }
  }

  void receive(std::unique_lock<std::mutex>& lock, int rank, const Collective& collective, Letter& letter) {
    const ConstView& from = letter.from->in;
    const View& to = collective.out;
    if (from.dtype != to.dtype || from.numel() != to.numel()) {
      fail_locked(fmt::format("local group: rank {} sends {} elements of {}, rank {} expects {} of {}", collective.src,
                              from.numel(), dtype_name(from.dtype), rank, to.numel(), dtype_name(to.dtype)));
      throw Error(*failure_);
    }
    letter.state = Letter::State::read;
    lock.unlock();
    copy_elements(at(from, 0), at(to, 0), to.numel(), to.dtype);
    lock.lock();
    letter.state = Letter::State::taken;
    changed_.notify_all();
  }

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member> members_;
  std::vector<Letter> letters_;  // (sender, receiver)
  std::optional<std::string> failure_;
  int arrived_ = 0;
  int computing_ = 0;
  std::int64_t round_ = 0;
};

class LocalGroup final : public ProcessGroup {
 public:
  LocalGroup(int rank, int size, std::shared_ptr<Meeting> meeting)
      : ProcessGroup(rank, size), meeting_(std::move(meeting)) {
    if (size > 1) worker_.emplace([this](const Collective& collective) { meeting_->run(this->rank(), collective); });
  }
  ~LocalGroup() override { meeting_->depart(rank()); }

  std::string_view backend() const override { return "local"; }

  void abort(const std::string& reason) override {
    meeting_->fail(fmt::format("local group: aborted by rank {}: {}", rank(), reason));
  }

 protected:
  Work issue(const Collective& collective) override {
    if (worker_) return worker_->issue(collective);
    try {
      meeting_->run(rank(), collective);
      return Work::ended();
    } catch (...) {
      return Work::ended(std::current_exception());
    }
  }

 private:
  std::shared_ptr<Meeting> meeting_;
  std::optional<CollectiveWorker> worker_;  // one rank needs no thread: its collectives end where they are issued
};

}  // namespace

std::vector<std::unique_ptr<ProcessGroup>> make_local_groups(int size, const GroupOptions& options) {
  expect(size >= 1, "local group: expected at least 1 rank, got {}", size);
  auto meeting = std::make_shared<Meeting>(size, options.timeout);
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  for (int rank = 0; rank < size; ++rank) groups.push_back(std::make_unique<LocalGroup>(rank, size, meeting));
  return groups;
}

}  // namespace lockstep
