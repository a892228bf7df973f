// A group that can leave its all-reduces out: a step on it takes what it would without communication.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "framework/distributed/process_group.h"

namespace lockstep {

// Hands everything on to another group; from leave_out() on, all but the all-reduces, which then are finished when they
// are issued and change nothing. Ranks that train so no longer agree.
class SilentGroup final : public ProcessGroup {
 public:
  // `group` must outlive it.
  explicit SilentGroup(ProcessGroup& group) : ProcessGroup(group.rank(), group.size()), group_(group) {}

  // What makes the ranks equal before the first step needs all-reduces: call it then.
  void leave_out() { left_out_ = true; }

  std::string_view backend() const override { return group_.backend(); }
  Store* store() const override { return group_.store(); }
  void check() const override { group_.check(); }
  void watch(std::function<std::string()> where) override { group_.watch(std::move(where)); }
  void abort(const std::string& reason) override { group_.abort(reason); }

 protected:
  Work issue(const Collective& collective) override {
    const bool carried = !left_out_ || collective.kind != Collective::Kind::all_reduce;
    return carried ? issue_on(group_, collective) : Work();
  }

 private:
  ProcessGroup& group_;
  bool left_out_ = false;
};

}  // namespace lockstep
