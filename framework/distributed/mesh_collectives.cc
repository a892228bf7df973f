#include "framework/distributed/mesh_collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/distributed/reduce.h"

namespace lockstep {
namespace {

using Kind = Collective::Kind;

// Up to here an all_reduce sends everything to everybody: more bytes, but one exchange instead of two.
constexpr std::int64_t kSmallBytes = 16 * 1024;

// Larger ones go in segments, each small enough to be reduced while it is in the second-level cache.
constexpr std::int64_t kSegmentBytes = std::int64_t{2} << 20;

// An exchange may carry one of each kind between two ranks.
int contribution_tag(int exchange) { return 2 * exchange; }
int result_tag(int exchange) { return 2 * exchange + 1; }

std::span<const std::byte> bytes_of(const ConstView& view, std::int64_t begin, std::int64_t count) {
  const std::int64_t width = dtype_bytes(view.dtype);
  return {static_cast<const std::byte*>(view.data) + begin * width, static_cast<std::size_t>(count * width)};
}

std::span<std::byte> bytes_of(const View& view, std::int64_t begin, std::int64_t count) {
  const std::int64_t width = dtype_bytes(view.dtype);
  return {static_cast<std::byte*>(view.data) + begin * width, static_cast<std::size_t>(count * width)};
}

}  // namespace

MeshCollectives::MeshCollectives(int rank, int size, Exchange exchange)
    : rank_(rank), size_(size), exchange_(std::move(exchange)) {}

template <class Visit>
void MeshCollectives::for_others(Visit visit) const {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) visit(peer);
  }
}

void MeshCollectives::exchange() {
  exchange_(sends_, receives_);
  ++exchanges_;
  sends_.clear();
  receives_.clear();
}

template <class PartOf>
void MeshCollectives::add_contributions(const Collective& collective, PartOf part_of) {
  const Part mine = part_of(rank_);
  const std::size_t bytes = bytes_of(collective.in, mine.begin, mine.count).size();
  scratch_.resize(std::max(scratch_.size(), bytes * static_cast<std::size_t>(size_ - 1)));
  std::span<std::byte> free = scratch_;
  const int tag = contribution_tag(exchanges_);
  inputs_.clear();
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) {
      inputs_.push_back(bytes_of(collective.in, mine.begin, mine.count).data());
    } else {
      const Part theirs = part_of(rank);
      sends_.push_back({rank, tag, bytes_of(collective.in, theirs.begin, theirs.count)});
      receives_.push_back({rank, tag, free.first(bytes)});
      inputs_.push_back(free.data());
      free = free.subspan(bytes);
    }
  }
}

template <class PartOf>
void MeshCollectives::add_results(const View& out, PartOf part_of, std::span<const std::byte> mine) {
  const int tag = result_tag(exchanges_);
  for_others([&](int peer) {
    const Part theirs = part_of(peer);
    sends_.push_back({peer, tag, mine});
    receives_.push_back({peer, tag, bytes_of(out, theirs.begin, theirs.count)});
  });
}

void MeshCollectives::reduce(const Collective& collective, std::span<std::byte> result) {
  const std::int64_t count = std::ssize(result) / dtype_bytes(collective.in.dtype);
  reduce_elements(collective.in.dtype, collective.op, inputs_, result.data(), count);
}

void MeshCollectives::run(const Collective& collective) {
  exchanges_ = 0;
  sends_.clear();
  receives_.clear();
  switch (collective.kind) {
    case Kind::all_reduce:
      return all_reduce(collective);
    case Kind::broadcast:
      return broadcast(collective);
    case Kind::all_gather:
      return all_gather(collective);
    case Kind::reduce_scatter:
      return reduce_scatter(collective);
    case Kind::send_recv:
      return send_recv(collective);
    case Kind::barrier:
      return barrier();
  }
}

void MeshCollectives::all_reduce(const Collective& collective) {
  const std::int64_t count = collective.in.numel();
  if (collective.in.bytes() <= kSmallBytes) {
    add_contributions(collective, [&](int) { return Part{0, count}; });
    exchange();
    return reduce(collective, bytes_of(collective.out, 0, count));
  }

  const std::int64_t per_segment = kSegmentBytes / dtype_bytes(collective.in.dtype);
  const std::int64_t segments = (count + per_segment - 1) / per_segment;
  const auto part_of = [&](std::int64_t segment) {
    return [=, this](int rank) {
      const std::int64_t begin = segment * per_segment;
      const std::int64_t length = std::min(per_segment, count - begin);
      const std::int64_t part = length * rank / size_;
      return Part{begin + part, length * (rank + 1) / size_ - part};
    };
  };
  const auto mine = [&](std::int64_t segment) {
    const Part part = part_of(segment)(rank_);
    return bytes_of(collective.out, part.begin, part.count);
  };
  // One exchange carries the contributions to a segment and the results of the segment before.
  for (std::int64_t segment = 0; segment <= segments; ++segment) {
    if (segment < segments) add_contributions(collective, part_of(segment));
    if (segment > 0) add_results(collective.out, part_of(segment - 1), mine(segment - 1));
    exchange();
    if (segment < segments) reduce(collective, mine(segment));
  }
}

void MeshCollectives::reduce_scatter(const Collective& collective) {
  const std::int64_t count = collective.out.numel();
  add_contributions(collective, [&](int rank) { return Part{rank * count, count}; });
  exchange();
  reduce(collective, bytes_of(collective.out, 0, count));
}

void MeshCollectives::all_gather(const Collective& collective) {
  const std::int64_t count = collective.in.numel();
  const auto mine = bytes_of(collective.in, 0, count);
  const auto place = bytes_of(collective.out, rank_ * count, count);
  if (place.data() != mine.data()) std::memcpy(place.data(), mine.data(), mine.size());
  add_results(
      collective.out,
      [&](int rank) {
        return Part{rank * count, count};
      },
      mine);
  exchange();
}

void MeshCollectives::broadcast(const Collective& collective) {
  const std::int64_t count = collective.in.numel();
  if (rank_ == collective.root) {
    for_others([&](int peer) { sends_.push_back({peer, 0, bytes_of(collective.in, 0, count)}); });
  } else {
    receives_.push_back({collective.root, 0, bytes_of(collective.out, 0, count)});
  }
  exchange();
}

void MeshCollectives::send_recv(const Collective& collective) {
  if (collective.dst >= 0) sends_.push_back({collective.dst, 0, bytes_of(collective.in, 0, collective.in.numel())});
  if (collective.src >= 0)
    receives_.push_back({collective.src, 0, bytes_of(collective.out, 0, collective.out.numel())});
  exchange();
}

void MeshCollectives::barrier() {
  scratch_.resize(std::max(scratch_.size(), static_cast<std::size_t>(size_)));
  for_others([&](int peer) {
    sends_.push_back({peer, 0, std::span(scratch_).subspan(static_cast<std::size_t>(rank_), 1)});
    receives_.push_back({peer, 0, std::span(scratch_).subspan(static_cast<std::size_t>(peer), 1)});
  });
  exchange();
}

}  // namespace lockstep
