#include "framework/interconnect/link_probe.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <type_traits>

#include "framework/core/allocator.h"
#include "framework/core/context.h"
#include "framework/core/tensor.h"
#include "framework/distributed/agreement.h"

namespace lockstep {
namespace {

// What a rank tells the others, one after the other.
constexpr std::size_t kTextBytes = 160;
struct Report {
  std::array<std::uint64_t, 4> bytes;
  std::array<std::uint8_t, 4> known;
  std::uint8_t nvlink_active, nccl_avoids_nvlink;
  double pcie_least_bytes, pcie_most_bytes;
  std::array<char, kTextBytes> texts[5];
};

void put_text(std::array<char, kTextBytes>& place, const std::string& text) {
  place.fill('\0');
  std::copy_n(text.begin(), std::min(text.size(), kTextBytes - 1), place.begin());
}

// Everything that was enqueued is done, on every rank.
void meet(ProcessGroup& group) {
  group.barrier("link probe").wait();
  context().synchronize();
  group.check();
}

// Every rank's `mine`, in rank order. Through tensors, since a group may only carry device memory.
template <class T>
std::vector<T> gather(ProcessGroup& group, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto size = static_cast<std::int64_t>(sizeof(T));
  const Tensor sent = Tensor::from_host(std::span(reinterpret_cast<const std::uint8_t*>(&mine), sizeof(T)), {size});
  const Tensor received = Tensor::empty({size * group.size()}, DType::u8);
  group.all_gather(sent, received, "link probe").wait();
  const std::vector<std::uint8_t> bytes = received.to_host<std::uint8_t>();
  group.check();
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

// The first rank's that has one.
std::string any_text(ProcessGroup& group, const std::string& text) {
  const std::vector<std::string> all = gather_texts(group, "link probe", text);
  const auto found = std::find_if(all.begin(), all.end(), [](const std::string& of_rank) { return !of_rank.empty(); });
  return found == all.end() ? std::string() : *found;
}

}  // namespace

std::vector<unsigned> gather_processes(ProcessGroup& group) { return gather(group, static_cast<unsigned>(::getpid())); }

std::vector<LinkTraffic> gather_traffic(ProcessGroup& group, const LinkTraffic& traffic) {
  Report mine{};
  const std::array<const ByteCount*, 4> counts{&traffic.nvlink_sent, &traffic.nvlink_received, &traffic.pcie_sent,
                                               &traffic.pcie_received};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    mine.bytes[i] = counts[i]->value_or(0);
    mine.known[i] = counts[i]->value.has_value() ? 1 : 0;
    put_text(mine.texts[i], counts[i]->why_not);
  }
  mine.nvlink_active = traffic.nvlink_active ? 1 : 0;
  mine.nccl_avoids_nvlink = traffic.nccl_avoids_nvlink ? 1 : 0;
  mine.pcie_least_bytes = traffic.pcie_least_bytes;
  mine.pcie_most_bytes = traffic.pcie_most_bytes;
  put_text(mine.texts[4], traffic.disturbance);

  const std::vector<Report> reports = gather(group, mine);
  std::vector<LinkTraffic> result(reports.size());
  for (std::size_t rank = 0; rank < result.size(); ++rank) {
    const Report& report = reports[rank];
    LinkTraffic& theirs = result[rank];
    const std::array<ByteCount*, 4> their_counts{&theirs.nvlink_sent, &theirs.nvlink_received, &theirs.pcie_sent,
                                                 &theirs.pcie_received};
    for (std::size_t i = 0; i < their_counts.size(); ++i) {
      if (report.known[i] != 0) their_counts[i]->value = report.bytes[i];
      their_counts[i]->why_not = report.texts[i].data();
    }
    theirs.gpu = fmt::format("rank {}", rank);
    theirs.nvlink_active = report.nvlink_active != 0;
    theirs.nccl_avoids_nvlink = report.nccl_avoids_nvlink != 0;
    theirs.pcie_least_bytes = report.pcie_least_bytes;
    theirs.pcie_most_bytes = report.pcie_most_bytes;
    theirs.disturbance = report.texts[4].data();
  }
  return result;
}

LinkProof probe_link(LinkMode mode, ProcessGroup& group, LinkCounters& counters, const ProbeOptions& options) {
  if (group.size() < 2) return judge_probe(mode, 0, {});
  CachingAllocator& allocator = device_allocator(context().device());
  const MemoryPool pool = allocator.make_pool();
  {
    const MemoryPoolScope scope(pool);
    const Tensor buffer = Tensor::zeros({options.bytes / dtype_bytes(DType::f32)}, DType::f32);
    const auto reduce = [&] { group.all_reduce(buffer, ReduceOp::sum, "link probe").wait(); };
    reduce();  // connects, which also moves bytes
    meet(group);
    counters.start();
    meet(group);  // before anybody's bytes are moved, everybody has read
    for (int i = 0; i < options.repeats; ++i) reduce();
    meet(group);
  }
  LinkTraffic mine = counters.stop();
  mine.nccl_avoids_nvlink = options.nccl_avoids_nvlink && options.nccl_avoids_nvlink();
  const std::vector<LinkTraffic> ranks = gather_traffic(group, mine);
  const ProbeConditions conditions{.other_amounts = any_text(group, options.conditions.other_amounts),
                                   .flagged = any_text(group, options.conditions.flagged)};
  allocator.trim(pool);
  const double wire_bytes = options.repeats * all_reduce_wire_bytes(static_cast<double>(options.bytes), group.size());
  return judge_probe(mode, wire_bytes, ranks, conditions);
}

}  // namespace lockstep
