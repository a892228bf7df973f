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
  exchange_(sends_, receives_, step_++);
  sends_.clear();
  receives_.clear();
}

template <class PartOf>
void MeshCollectives::reduce_parts(const Collective& collective, PartOf part_of, std::span<std::byte> result) {
  const Part mine = part_of(rank_);
  const std::size_t bytes = result.size();
  scratch_.resize(std::max(scratch_.size(), bytes * static_cast<std::size_t>(size_ - 1)));
  std::span<std::byte> free = scratch_;
  inputs_.clear();
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) {
      inputs_.push_back(bytes_of(collective.in, mine.begin, mine.count).data());
    } else {
      const Part theirs = part_of(rank);
      sends_.push_back({rank, bytes_of(collective.in, theirs.begin, theirs.count)});
      receives_.push_back({rank, free.first(bytes)});
      inputs_.push_back(free.data());
      free = free.subspan(bytes);
    }
  }
  exchange();
  reduce_elements(collective.in.dtype, collective.op, inputs_, result.data(), mine.count);
}

template <class PartOf>
void MeshCollectives::gather_parts(const Collective& collective, PartOf part_of, std::span<const std::byte> mine) {
  for_others([&](int peer) {
    const Part theirs = part_of(peer);
    sends_.push_back({peer, mine});
    receives_.push_back({peer, bytes_of(collective.out, theirs.begin, theirs.count)});
  });
  exchange();
}

void MeshCollectives::run(const Collective& collective) {
  step_ = 0;
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
    return reduce_parts(
        collective,
        [&](int) {
          return Part{0, count};
        },
        bytes_of(collective.out, 0, count));
  }
  const auto part_of = [&](int rank) {
    const std::int64_t begin = count * rank / size_;
    return Part{begin, count * (rank + 1) / size_ - begin};
  };
  const Part mine = part_of(rank_);
  const auto result = bytes_of(collective.out, mine.begin, mine.count);
  reduce_parts(collective, part_of, result);
  gather_parts(collective, part_of, result);
}

void MeshCollectives::reduce_scatter(const Collective& collective) {
  const std::int64_t count = collective.out.numel();
  reduce_parts(
      collective,
      [&](int rank) {
        return Part{rank * count, count};
      },
      bytes_of(collective.out, 0, count));
}

void MeshCollectives::all_gather(const Collective& collective) {
  const std::int64_t count = collective.in.numel();
  const auto mine = bytes_of(collective.in, 0, count);
  const auto place = bytes_of(collective.out, rank_ * count, count);
  if (place.data() != mine.data()) std::memcpy(place.data(), mine.data(), mine.size());
  gather_parts(
      collective,
      [&](int rank) {
        return Part{rank * count, count};
      },
      mine);
}

void MeshCollectives::broadcast(const Collective& collective) {
  const std::int64_t count = collective.in.numel();
  if (rank_ == collective.root) {
    for_others([&](int peer) { sends_.push_back({peer, bytes_of(collective.in, 0, count)}); });
  } else {
    receives_.push_back({collective.root, bytes_of(collective.out, 0, count)});
  }
  exchange();
}

void MeshCollectives::send_recv(const Collective& collective) {
  if (collective.dst >= 0) sends_.push_back({collective.dst, bytes_of(collective.in, 0, collective.in.numel())});
  if (collective.src >= 0) receives_.push_back({collective.src, bytes_of(collective.out, 0, collective.out.numel())});
  exchange();
}

void MeshCollectives::barrier() {
  scratch_.resize(std::max(scratch_.size(), static_cast<std::size_t>(size_)));
  for_others([&](int peer) {
    sends_.push_back({peer, std::span(scratch_).subspan(static_cast<std::size_t>(rank_), 1)});
    receives_.push_back({peer, std::span(scratch_).subspan(static_cast<std::size_t>(peer), 1)});
  });
  exchange();
}

}  // namespace lockstep
