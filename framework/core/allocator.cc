#include "framework/core/allocator.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <new>

#include "framework/core/cuda_memory.h"
#include "framework/core/error.h"
#include "kernels/dispatch.h"

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kGranule = 512;                 // sizes of blocks are multiples of it
constexpr std::size_t kSmall = std::size_t{1} << 20;  // below, blocks share a segment of twice the size

class HeapSource final : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override {
    return ::operator new (bytes, std::align_val_t{kAlignment}, std::nothrow);
  }
  void release(void* address) noexcept override { ::operator delete (address, std::align_val_t{kAlignment}); }
  Capacity capacity() const override { return {.name = "the host"}; }
  bool is_cut() const override { return false; }
};

std::string in_mib(std::size_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

std::string table_of(const CachingAllocator::Stats& stats, std::size_t bytes_outside,
                     const MemorySource::Capacity& capacity) {
  std::string text;
  const auto add = [&text](const char* what, std::size_t bytes) {
    text += fmt::format("  {:<18} {:>14}\n", what, in_mib(bytes));
  };
  for (std::size_t i = 0; i < kMemoryPurposes; ++i) {
    add(memory_purpose_name(static_cast<MemoryPurpose>(i)), stats.bytes_by_purpose[i]);
  }
  add("cached for reuse", stats.bytes_reserved - stats.bytes_in_use);
  if (capacity.total_bytes > 0) {
    const std::size_t known = stats.bytes_reserved + bytes_outside;
    const std::size_t taken = capacity.total_bytes - capacity.free_bytes;
    add("all others", taken > known ? taken - known : 0);  // the context, libraries, other processes
    add("free", capacity.free_bytes);
    add("total", capacity.total_bytes);
  }
  text.pop_back();
  return text;
}

}  // namespace

CachingAllocator::CachingAllocator(std::unique_ptr<MemorySource> source) : source_(std::move(source)) {}

CachingAllocator::~CachingAllocator() {
  for (const auto& [address, block] : blocks_) {
    if (block.begins_segment) source_->release(address);
  }
}

std::size_t CachingAllocator::rounded(std::size_t bytes) const {
  const std::size_t step =
      source_->is_cut() ? kGranule : std::max(kGranule, std::bit_floor(std::max<std::size_t>(bytes, 1)) / 8);
  return std::max(step, (bytes + step - 1) / step * step);
}

void* CachingAllocator::allocate(std::size_t bytes) {
  const std::size_t wanted = rounded(bytes);
  const MemoryPool pool = MemoryPoolScope::current();
  const std::lock_guard lock(mutex_);
  const bool small = source_->is_cut() && wanted < kSmall;
  auto found = unused_block(pool, small, wanted);
  if (found == blocks_.end()) {
    const std::size_t segment = small ? 2 * kSmall : wanted;
    found = add_segment(pool, small, segment);
    if (found == blocks_.end()) {
      release_segments(MemoryPool::shared);
      found = add_segment(pool, small, segment);
    }
    if (found == blocks_.end()) throw Error(out_of_memory(segment));
  }
  auto& [address, block] = *found;
  unused_.erase(size_of(*found));
  cut(found, wanted);
  block.purpose = MemoryScope::current();
  stats_.bytes_in_use += wanted;
  stats_.bytes_peak = std::max(stats_.bytes_peak, stats_.bytes_in_use);
  stats_.bytes_by_purpose[static_cast<std::size_t>(*block.purpose)] += wanted;
  return address;
}

void CachingAllocator::release(void* address) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<std::byte*>(address));
  Block& block = found->second;
  stats_.bytes_in_use -= block.bytes;
  stats_.bytes_by_purpose[static_cast<std::size_t>(*block.purpose)] -= block.bytes;
  block.purpose.reset();
  add_unused(found);
}

// The rest of this part is under the lock. The smallest that is large enough, the lowest address first; end(): none.
CachingAllocator::Blocks::iterator CachingAllocator::unused_block(MemoryPool pool, bool small, std::size_t bytes) {
  const auto found = unused_.lower_bound({pool, small, bytes, nullptr});
  if (found == unused_.end()) return blocks_.end();
  const auto& [its_pool, its_small, its_bytes, address] = *found;
  const bool fits = its_pool == pool && its_small == small && (source_->is_cut() || its_bytes == bytes);
  return fits ? blocks_.find(address) : blocks_.end();
}

// end(): the memory is not there.
CachingAllocator::Blocks::iterator CachingAllocator::add_segment(MemoryPool pool, bool small, std::size_t bytes) {
  auto* const address = static_cast<std::byte*>(source_->allocate(bytes));
  if (address == nullptr) return blocks_.end();
  ++stats_.system_allocations;
  stats_.bytes_reserved += bytes;
  const auto block = blocks_.emplace(address, Block{bytes, pool, small, true, {}}).first;
  unused_.insert(size_of(*block));
  return block;
}

// What a block has beyond `bytes` becomes a block of its own.
void CachingAllocator::cut(Blocks::iterator block, std::size_t bytes) {
  const std::size_t rest = block->second.bytes - bytes;
  if (rest == 0) return;
  block->second.bytes = bytes;
  const Block tail{rest, block->second.pool, block->second.small, false, {}};
  unused_.insert(size_of(*blocks_.emplace_hint(std::next(block), block->first + bytes, tail)));
}

// Joins it to unused neighbours of its segment.
void CachingAllocator::add_unused(Blocks::iterator block) {
  const auto join_next = [this](Blocks::iterator first) {
    const auto next = std::next(first);
    if (next == blocks_.end() || next->second.begins_segment || next->second.purpose) return;
    unused_.erase(size_of(*next));
    first->second.bytes += next->second.bytes;
    blocks_.erase(next);
  };
  join_next(block);
  if (!block->second.begins_segment) {
    const auto before = std::prev(block);
    if (!before->second.purpose) {
      unused_.erase(size_of(*before));
      join_next(before);
      block = before;
    }
  }
  unused_.insert(size_of(*block));
}

// Those that are unused from end to end.
void CachingAllocator::release_segments(MemoryPool pool) {
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto next = std::next(block);
    const bool ends_segment = next == blocks_.end() || next->second.begins_segment;
    if (block->second.pool == pool && block->second.begins_segment && ends_segment && !block->second.purpose) {
      unused_.erase(size_of(*block));
      stats_.bytes_reserved -= block->second.bytes;
      source_->release(block->first);
      blocks_.erase(block);
    }
    block = next;
  }
}

MemoryPool CachingAllocator::make_pool() {
  const std::lock_guard lock(mutex_);
  return static_cast<MemoryPool>(pools_++);
}

void CachingAllocator::trim(MemoryPool pool) {
  const std::lock_guard lock(mutex_);
  release_segments(pool);
}

void CachingAllocator::reserve(MemoryPool pool, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > 0) add_segment(pool, false, rounded(bytes));  // blocks get segments of their own where it is not there
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.bytes_peak = stats_.bytes_in_use;
}

void CachingAllocator::count_outside(MemoryPurpose purpose, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_outside_ += bytes;
  stats_.bytes_by_purpose[static_cast<std::size_t>(purpose)] += bytes;
}

CachingAllocator::Stats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::string CachingAllocator::table() const {
  const std::lock_guard lock(mutex_);
  return table_of(stats_, bytes_outside_, source_->capacity());
}

// Under the lock.
std::string CachingAllocator::out_of_memory(std::size_t bytes) const {
  const MemorySource::Capacity capacity = source_->capacity();
  return fmt::format("out of memory on {}: {} asked for {}{}\n{}", capacity.name, in_mib(bytes),
                     memory_purpose_name(MemoryScope::current()),
                     capacity.total_bytes > 0 ? fmt::format(", {} free", in_mib(capacity.free_bytes)) : "",
                     table_of(stats_, bytes_outside_, capacity));
}

CachingAllocator& device_allocator(DeviceType device) {
  if constexpr (kernels::kHasCuda) {
    if (device == DeviceType::cuda) {
      static auto* gpu = new CachingAllocator(cuda_memory_source());
      return *gpu;
    }
  }
  expect(device == DeviceType::cpu, "allocator: expected a device of this build (cpu), got cuda");
  static auto* heap = new CachingAllocator(std::make_unique<HeapSource>());
  return *heap;
}

std::shared_ptr<void> allocate_shared(DeviceType device, std::size_t bytes) {
  CachingAllocator& allocator = device_allocator(device);
  return {allocator.allocate(bytes), [&allocator](void* address) { allocator.release(address); }};
}

}  // namespace lockstep
