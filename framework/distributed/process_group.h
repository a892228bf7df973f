// A group of ranks and the collectives between them: one interface, one class per engine that carries the bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "framework/distributed/work.h"
#include "kernels/tensor_view.h"

namespace lockstep {

struct Environment;
class Store;

enum class ReduceOp : std::uint8_t { sum, max, min };

// One call of a group, already checked: what a backend gets to do, and what an error message or a hang report names.
struct Collective {
  enum class Kind : std::uint8_t { all_reduce, broadcast, all_gather, reduce_scatter, send_recv, barrier };

  Kind kind = Kind::barrier;
  ConstView in;  // what this rank gives; for broadcast, and for all_reduce in place, the same memory as out
  View out;      // what this rank gets; null data: it gets nothing (send)
  ReduceOp op = ReduceOp::sum;
  int root = 0;  // broadcast
  int dst = -1;  // send_recv: where `in` goes, -1: nowhere
  int src = -1;  // send_recv: where `out` comes from, -1: from nowhere
  std::string_view label{};

  // "all_reduce f32 (262144) [bucket 3]"
  std::string to_string() const;
};

// The ranks that train together.
//
// Order: every rank issues the same collectives in the same order, from one thread; they run one after the other.
// Asynchronous: each call returns at once with a Work; memory given to a call is the group's until that work is
// finished, and a label (shown in errors and hang reports) must live as long.
// Streams: on a GPU the work is ordered after what the current compute stream holds so far, and Work::wait makes that
// stream wait, not the host. On the CPU Work::wait blocks the caller, and a group needs no device.
// Reduction: every rank ends up with equal bits; sums are never divided (the average is in the loss gradient).
// Errors: a wrong argument throws std::invalid_argument here; a failure of the work (a dead peer, the deadline, ranks
// that disagree) is an Error rethrown by wait(), and every later call fails too: a group does not recover.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // "gloo", "local", "nccl".
  virtual std::string_view backend() const = 0;

  // tensor becomes op over all ranks' tensors, in place. Same shape and dtype on every rank.
  Work all_reduce(View tensor, ReduceOp op = ReduceOp::sum, std::string_view label = {});
  // The same out of place: `in` is not changed. Either all of it is the memory of `out`, or nothing.
  Work all_reduce(ConstView in, View out, ReduceOp op = ReduceOp::sum, std::string_view label = {});
  // tensor becomes root's tensor.
  Work broadcast(View tensor, int root, std::string_view label = {});
  // out, size() * in.numel() elements, becomes the ranks' `in` one after the other in rank order.
  Work all_gather(ConstView in, View out, std::string_view label = {});
  // out becomes part rank() of op over all ranks' `in`, in.numel() == size() * out.numel(). `in` is not changed.
  Work reduce_scatter(ConstView in, View out, ReduceOp op = ReduceOp::sum, std::string_view label = {});
  // A send is finished no earlier than its receive begins, and calls run one after the other: two ranks that both send
  // first wait for each other until the deadline. An exchange is one send_recv on each side.
  Work send(ConstView tensor, int dst, std::string_view label = {});
  Work recv(View tensor, int src, std::string_view label = {});
  Work send_recv(ConstView out, int dst, View in, int src, std::string_view label = {});
  // Finished when every rank has issued it.
  Work barrier(std::string_view label = {});

  // Where the ranks agree on what must not go through the engine, as before its first collective; null: nowhere.
  virtual Store* store() const { return nullptr; }

  // Throws what has made this group fail, if anything has. On a GPU, where no wait() blocks, the host learns of it
  // late, and an aborted collective leaves garbage: call it after waiting for the device, before the result is used.
  virtual void check() const {}
  // Puts what the current compute stream holds so far under the deadline of one collective: a captured step, whose
  // collectives no issue has announced. `where` says for a hang report how far it has come, and each time that this
  // changes the deadline begins anew; any thread may call it.
  virtual void watch(std::function<std::string()> /*where*/) {}

  // Makes all unfinished and later work of this group fail with `reason`, on this rank at once and on the others as
  // their engine notices. Any thread may call it.
  virtual void abort(const std::string& reason) = 0;

 protected:
  ProcessGroup(int rank, int size);
  virtual Work issue(const Collective& collective) = 0;
  // For a group that hands its work on to another.
  static Work issue_on(ProcessGroup& group, const Collective& collective) { return group.issue(collective); }

 private:
  int rank_;
  int size_;
};

struct GroupOptions {
  // How long one collective may take from its start on this rank, waiting for slower ranks included.
  std::chrono::milliseconds timeout{30'000};
};

// The group of the ranks of `environment`. backend: "gloo", "nccl", "local" (one rank), or "auto": local for one rank,
// else nccl where the current context is on a GPU and gloo where it is not. The store may be null for one rank. Throws
// std::invalid_argument for a backend that is unknown, does not fit or is not in this build (and says what to install).
std::unique_ptr<ProcessGroup> make_process_group(std::string_view backend, const Environment& environment,
                                                 std::shared_ptr<Store> store, const GroupOptions& options = {});

}  // namespace lockstep
