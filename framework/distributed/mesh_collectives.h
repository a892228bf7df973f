// Collectives for an engine that offers nothing but messages between any two ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "framework/distributed/process_group.h"

namespace lockstep {

// A message of an exchange. Both sides know its size and its tag, which no other message of the collective between the
// same two ranks has.
struct Outgoing {
  int peer;
  int tag;
  std::span<const std::byte> bytes;
};

struct Incoming {
  int peer;
  int tag;
  std::span<std::byte> bytes;
};

// Every rank talks to every other directly. In an all_reduce each rank gets all others' contributions to its own part
// and reduces them in rank order, then gives the result to all: 2(N-1)/N of the bytes leave each rank, as with a ring,
// in 2 steps instead of 2(N-1). Rank order makes the bits independent of sizes and equal on all ranks.
class MeshCollectives {
 public:
  // Sends and receives all of these at once and returns when everything is done.
  using Exchange = std::function<void(std::span<const Outgoing>, std::span<const Incoming>)>;

  MeshCollectives(int rank, int size, Exchange exchange);

  void run(const Collective& collective);

 private:
  struct Part {
    std::int64_t begin;
    std::int64_t count;
  };

  void all_reduce(const Collective& collective);
  void broadcast(const Collective& collective);
  void all_gather(const Collective& collective);
  void reduce_scatter(const Collective& collective);
  void send_recv(const Collective& collective);
  void barrier();

  // Adds to the next exchange: every rank gets its part, the elements part_of(rank) of `in`, from all others.
  template <class PartOf>
  void add_contributions(const Collective& collective, PartOf part_of);
  // What has come of them, reduced.
  void reduce(const Collective& collective, std::span<std::byte> result);
  // Adds to the next exchange: every rank gives `mine` to all others, which put it at part_of(rank) of `out`.
  template <class PartOf>
  void add_results(const View& out, PartOf part_of, std::span<const std::byte> mine);

  template <class Visit>
  void for_others(Visit visit) const;
  // Of what is in sends_ and receives_.
  void exchange();

  int rank_;
  int size_;
  Exchange exchange_;
  int exchanges_ = 0;  // in this collective
  // These are members to be used again without an allocation.
  std::vector<Outgoing> sends_;
  std::vector<Incoming> receives_;
  std::vector<std::byte> scratch_;
  std::vector<const void*> inputs_;
};

}  // namespace lockstep
