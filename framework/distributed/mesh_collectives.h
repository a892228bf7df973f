// Collectives for an engine that offers nothing but messages between any two ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "framework/distributed/process_group.h"

namespace lockstep {

struct Outgoing {
  int peer;
  std::span<const std::byte> bytes;
};

struct Incoming {
  int peer;
  std::span<std::byte> bytes;
};

// Every rank talks to every other directly. An all_reduce is two exchanges: each rank gets all others' contributions to
// its own part and reduces them in rank order, then gives the result to all; 2(N-1)/N of the bytes leave each rank, as
// with a ring, in 2 steps instead of 2(N-1). Rank order makes the bits independent of sizes and equal on all ranks.
class MeshCollectives {
 public:
  // Sends and receives all of these at once and returns when everything is done. `step` counts from 0 within a
  // collective. Both sides of a message agree on its size.
  using Exchange = std::function<void(std::span<const Outgoing>, std::span<const Incoming>, int step)>;

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

  // Every rank gets its part (part_of(rank) of the elements) from all others, and reduces it into `result`.
  template <class PartOf>
  void reduce_parts(const Collective& collective, PartOf part_of, std::span<std::byte> result);
  // Every rank gives `mine` to all others, which put it where part_of(rank) says.
  template <class PartOf>
  void gather_parts(const Collective& collective, PartOf part_of, std::span<const std::byte> mine);

  template <class Visit>
  void for_others(Visit visit) const;
  // Of what is in sends_ and receives_.
  void exchange();

  int rank_;
  int size_;
  Exchange exchange_;
  int step_ = 0;
  // These are members to be used again without an allocation.
  std::vector<Outgoing> sends_;
  std::vector<Incoming> receives_;
  std::vector<std::byte> scratch_;
  std::vector<const void*> inputs_;
};

}  // namespace lockstep
