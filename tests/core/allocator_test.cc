#include "framework/core/allocator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "framework/core/error.h"
#include "tests/support/random.h"

namespace lockstep {
namespace {

constexpr std::size_t kMiB = 1 << 20;

// A device of 10 MiB.
class SmallSource : public MemorySource {
 public:
  static constexpr std::size_t kTotal = 10 * kMiB;

  void* allocate(std::size_t bytes) override {
    if (used_ + bytes > kTotal) return nullptr;
    used_ += bytes;
    void* address = ::operator new (bytes, std::align_val_t{64});
    sizes_[address] = bytes;
    return address;
  }
  void release(void* address) noexcept override {
    used_ -= sizes_.at(address);
    ::operator delete (address, std::align_val_t{64});
  }
  Capacity capacity() const override {
    return {.name = "a small device", .total_bytes = kTotal, .free_bytes = kTotal - used_};
  }

 private:
  std::size_t used_ = 0;
  std::map<void*, std::size_t> sizes_;
};

CachingAllocator small() { return CachingAllocator(std::make_unique<SmallSource>()); }

std::size_t bytes_of(const CachingAllocator& allocator, MemoryPurpose purpose) {
  return allocator.stats().bytes_by_purpose[static_cast<std::size_t>(purpose)];
}

TEST(Allocator, CutsTheSmallestBlockThatIsLargeEnough) {
  CachingAllocator allocator = small();
  void* large = allocator.allocate(4 * kMiB);
  void* middle = allocator.allocate(3 * kMiB);
  allocator.release(large);
  allocator.release(middle);
  void* first = allocator.allocate(2 * kMiB);
  EXPECT_EQ(first, middle);
  void* rest = allocator.allocate(kMiB);
  EXPECT_EQ(rest, static_cast<std::byte*>(middle) + 2 * kMiB);
  EXPECT_EQ(allocator.allocate(4 * kMiB), large);
  EXPECT_EQ(allocator.stats().system_allocations, 2);
  EXPECT_EQ(allocator.stats().bytes_in_use, 7 * kMiB);
  EXPECT_EQ(allocator.stats().bytes_reserved, 7 * kMiB);
  for (void* block : {first, rest, large}) allocator.release(block);
  EXPECT_EQ(allocator.stats().bytes_in_use, 0u);
  EXPECT_EQ(allocator.stats().bytes_peak, 7 * kMiB);
  EXPECT_EQ(allocator.allocate(3 * kMiB), middle) << "what was cut is whole again";
  allocator.release(middle);
  allocator.reset_peak();
  EXPECT_EQ(allocator.stats().bytes_peak, 0u);
}

TEST(Allocator, ASourceThatIsNotCutGivesTheSameBlockForTheSameSize) {
  class Heap final : public SmallSource {
    bool is_cut() const override { return false; }
  };
  CachingAllocator allocator(std::make_unique<Heap>());
  void* first = allocator.allocate(3 * kMiB);
  allocator.release(first);
  void* other = allocator.allocate(kMiB);
  EXPECT_NE(other, first);
  EXPECT_EQ(allocator.allocate(3 * kMiB), first);
  EXPECT_EQ(allocator.stats().system_allocations, 2);
  for (void* block : {first, other}) allocator.release(block);
}

TEST(Allocator, APoolIsItsOwnAndCanBeReserved) {
  CachingAllocator allocator = small();
  const MemoryPool pool = allocator.make_pool();
  allocator.reserve(pool, 4 * kMiB);
  allocator.reserve(pool, 400 * kMiB);  // not there: no harm
  void* shared = allocator.allocate(2 * kMiB);
  EXPECT_EQ(allocator.stats().system_allocations, 2);
  std::vector<void*> blocks;
  {
    const MemoryPoolScope scope(pool);
    for (int i = 0; i < 4; ++i) blocks.push_back(allocator.allocate(kMiB));
  }
  EXPECT_EQ(allocator.stats().system_allocations, 2);
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i], static_cast<std::byte*>(blocks[i - 1]) + kMiB);
  }
  for (void* block : blocks) allocator.release(block);
  allocator.release(shared);
  allocator.trim(MemoryPool::shared);
  EXPECT_EQ(allocator.stats().bytes_reserved, 4 * kMiB);
  allocator.trim(pool);
  EXPECT_EQ(allocator.stats().bytes_reserved, 0u);
}

TEST(Allocator, BlocksNeverOverlapAndTheSameRequestsFindTheSameAddresses) {
  const std::vector<double> draws = testing::random_values(2000, 0, 1);
  CachingAllocator allocator = small();
  // Frees and allocates as drawn, from nothing to nothing.
  const auto play = [&] {
    std::map<std::byte*, std::size_t> held;
    std::vector<std::byte*> addresses;
    for (std::size_t i = 0; i + 1 < draws.size(); i += 2) {
      for (bool frees = draws[i] < 0.45; !held.empty() && (frees || allocator.stats().bytes_in_use > 2 * kMiB);
           frees = false) {
        const auto place = static_cast<std::int64_t>(draws[i + 1] * static_cast<double>(held.size()));
        const auto block = std::next(held.begin(), place);
        allocator.release(block->first);
        held.erase(block);
      }
      const auto bytes = static_cast<std::size_t>(draws[i + 1] * draws[i] * kMiB);
      auto* const address = static_cast<std::byte*>(allocator.allocate(bytes));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % 64, 0u);
      const auto next = held.lower_bound(address);
      EXPECT_TRUE(next == held.end() || address + bytes <= next->first);
      EXPECT_TRUE(next == held.begin() || std::prev(next)->first + std::prev(next)->second <= address);
      held[address] = bytes;
      addresses.push_back(address);
    }
    for (const auto& [address, bytes] : held) allocator.release(address);
    EXPECT_EQ(allocator.stats().bytes_in_use, 0u);
    return addresses;
  };
  std::int64_t asked = -1;
  std::vector<std::byte*> settled;  // where nothing new was asked of the system
  while (asked != allocator.stats().system_allocations) {
    asked = allocator.stats().system_allocations;
    settled = play();
  }
  EXPECT_EQ(play(), settled);
  EXPECT_EQ(allocator.stats().system_allocations, asked);
  allocator.trim(MemoryPool::shared);
  EXPECT_EQ(allocator.stats().bytes_reserved, 0u);
}

TEST(Allocator, CountsByPurpose) {
  CachingAllocator allocator = small();
  void* activation = allocator.allocate(kMiB);
  void* parameter = nullptr;
  {
    const MemoryScope parameters(MemoryPurpose::parameters);
    parameter = allocator.allocate(2 * kMiB);
    const MemoryScope gradients(MemoryPurpose::gradients);
    allocator.release(allocator.allocate(4 * kMiB));
  }
  EXPECT_EQ(bytes_of(allocator, MemoryPurpose::activations), kMiB);
  EXPECT_EQ(bytes_of(allocator, MemoryPurpose::parameters), 2 * kMiB);
  EXPECT_EQ(bytes_of(allocator, MemoryPurpose::gradients), 0u);
  // A block counts for whoever has it now.
  void* again = allocator.allocate(4 * kMiB);
  EXPECT_EQ(bytes_of(allocator, MemoryPurpose::activations), 5 * kMiB);
  for (void* block : {activation, parameter, again}) allocator.release(block);
  for (const std::size_t bytes : allocator.stats().bytes_by_purpose) EXPECT_EQ(bytes, 0u);
}

TEST(Allocator, OutOfMemoryPrintsWhatHoldsIt) {
  CachingAllocator allocator = small();
  std::vector<void*> blocks;
  {
    const MemoryScope purpose(MemoryPurpose::optimizer);
    blocks.push_back(allocator.allocate(4 * kMiB));
  }
  {
    const MemoryPoolScope own(allocator.make_pool());  // a graph may work on it, so it is not given back
    allocator.release(allocator.allocate(2 * kMiB));
  }
  allocator.count_outside(MemoryPurpose::communication, kMiB / 2);
  std::string text;
  try {
    const MemoryScope purpose(MemoryPurpose::workspace);
    blocks.push_back(allocator.allocate(8 * kMiB));
  } catch (const Error& error) {
    text = error.what();
  }
  const auto row = [](const char* what, const char* mib) { return fmt::format("  {:<18} {:>10} MiB", what, mib); };
  EXPECT_NE(text.find("out of memory on a small device: 8.0 MiB asked for workspace, 4.0 MiB free"), std::string::npos)
      << text;
  for (const std::string& line : {row("parameters", "0.0"), row("optimizer state", "4.0"), row("communication", "0.5"),
                                  row("cached for reuse", "2.0"), row("free", "4.0"), row("total", "10.0")}) {
    EXPECT_NE(text.find(line), std::string::npos) << "no '" << line << "' in: " << text;
  }
  // It goes on with what there is.
  blocks.push_back(allocator.allocate(4 * kMiB));
  for (void* block : blocks) allocator.release(block);
}

TEST(Allocator, GivesBackWhatLiesUnusedWhenMemoryIsShort) {
  CachingAllocator allocator = small();
  void* used = allocator.allocate(2 * kMiB);
  for (const std::size_t mib : {1, 3, 4}) allocator.release(allocator.allocate(mib * kMiB));
  EXPECT_EQ(allocator.stats().bytes_reserved, 10 * kMiB);
  void* big = allocator.allocate(8 * kMiB);
  EXPECT_EQ(allocator.stats().bytes_reserved, 10 * kMiB);
  EXPECT_EQ(allocator.stats().bytes_in_use, 10 * kMiB);
  allocator.release(big);
  EXPECT_EQ(allocator.allocate(8 * kMiB), big);  // and is cached as ever
  EXPECT_THROW(allocator.allocate(kMiB), Error);
  for (void* block : {used, big}) allocator.release(block);
}

}  // namespace
}  // namespace lockstep
