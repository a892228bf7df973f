// Lesson 2: all-reduce by hand. The ring of framework/distributed/ring_all_reduce.cc, built from nothing but sends and
// receives, beside the group's own all-reduce, and what the cost formula says; docs/lesson_2_ring_all_reduce.md leads
// through it.
//
//     build/bin/lesson_2_ring_all_reduce [RANKS]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <vector>

#include "framework/core/error.h"
#include "framework/distributed/ring_all_reduce.h"
#include "framework/distributed/world.h"

using namespace lockstep;

namespace {

constexpr int kRepeats = 15;

// The least time of `reduce` on `count` floats, in us: whatever else the machine does only adds to it. Checks that
// every element is the sum over all ranks.
double measure(ProcessGroup& group, std::int64_t count, const std::function<void(View)>& reduce) {
  std::vector<float> values(static_cast<std::size_t>(count));
  const View view{values.data(), DType::f32, {count}};
  const float expected = static_cast<float>(group.size() * (group.size() + 1)) / 2;
  std::vector<double> times_us;
  for (int repeat = -2; repeat < kRepeats; ++repeat) {  // the first two warm up
    std::fill(values.begin(), values.end(), static_cast<float>(group.rank() + 1));
    group.barrier().wait();
    const auto start = std::chrono::steady_clock::now();
    reduce(view);
    const auto end = std::chrono::steady_clock::now();
    if (repeat >= 0) times_us.push_back(std::chrono::duration<double, std::micro>(end - start).count());
    if (!std::all_of(values.begin(), values.end(), [&](float value) { return value == expected; })) {
      throw Error("a sum is wrong");
    }
  }
  return *std::min_element(times_us.begin(), times_us.end());
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::max(2, std::atoi(argv[1])) : 2;
  return run_ranks(ranks, argv, [](World& world) {
    ProcessGroup& group = world.group();
    const double n = group.size();
    const auto ring = [&](View view) { ring_all_reduce(group, view); };
    const auto own = [&](View view) { group.all_reduce(view).wait(); };

    // Time = 2 (N-1) latency + 2 (N-1)/N bytes / bandwidth: a tiny and a large message give the two constants.
    constexpr std::int64_t kTiny = 16;
    constexpr std::int64_t kLarge = 8 << 20;
    const double tiny_us = measure(group, kTiny, ring);
    const double large_us = measure(group, kLarge, ring);
    const double latency_us = tiny_us / (2 * (n - 1));
    const double bytes_per_us = 2 * (n - 1) / n * 4 * kLarge / (large_us - tiny_us);

    if (world.rank() == 0) {
      fmt::print("{} ranks; from the ring at {} and {} bytes: latency {:.0f} us a step, bandwidth {:.2f} GB/s\n", n,
                 4 * kTiny, 4 * kLarge, latency_us, bytes_per_us / 1e3);
      fmt::print("{:>12} {:>14} {:>12} {:>12} {:>12}\n", "bytes", "sent by each", "ring (us)", "formula (us)",
                 "group (us)");
    }
    for (std::int64_t count = 1 << 10; count <= 4 << 20; count *= 8) {
      const double ring_us = measure(group, count, ring);
      const double own_us = measure(group, count, own);
      const double sent_bytes = 2 * (n - 1) / n * 4 * static_cast<double>(count);
      if (world.rank() == 0) {
        fmt::print("{:12} {:14.0f} {:12.0f} {:12.0f} {:12.0f}\n", 4 * count, sent_bytes, ring_us,
                   2 * (n - 1) * latency_us + sent_bytes / bytes_per_us, own_us);
      }
    }
  });
}
