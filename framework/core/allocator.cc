#include "framework/core/allocator.h"

#include <algorithm>
#include <bit>
#include <new>

#include "framework/core/cuda_memory.h"
#include "framework/core/error.h"
#include "kernels/dispatch.h"

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = 64;

class HeapSource final : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override {
    return ::operator new (bytes, std::align_val_t{kAlignment}, std::nothrow);
  }
  void release(void* address) noexcept override { ::operator delete (address, std::align_val_t{kAlignment}); }
  Capacity capacity() const override { return {.name = "the host"}; }
};

std::size_t round_up(std::size_t bytes) {
  const std::size_t step = std::max<std::size_t>(512, std::bit_floor(std::max<std::size_t>(bytes, 1)) / 8);
  return std::max(step, (bytes + step - 1) / step * step);
}

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
  for (const auto& [key, cached] : cached_) {
    for (void* address : cached) source_->release(address);
  }
}

void* CachingAllocator::allocate(std::size_t bytes) {
  const std::size_t rounded = round_up(bytes);
  const std::lock_guard lock(mutex_);
  const Block block{rounded, MemoryScope::current(), MemoryPoolScope::current()};
  std::vector<void*>& cached = cached_[{block.pool, rounded}];
  void* address = nullptr;
  if (cached.empty()) {
    address = source_->allocate(rounded);
    if (address == nullptr) {
      release_cached(MemoryPool::shared);
      address = source_->allocate(rounded);
    }
    if (address == nullptr) throw Error(out_of_memory(rounded));
    blocks_.emplace(address, block);
    ++stats_.system_allocations;
    stats_.bytes_reserved += rounded;
    cached.reserve(cached.capacity() + 1);  // so that release() never allocates
  } else {
    address = cached.back();
    cached.pop_back();
    blocks_.at(address) = block;
  }
  stats_.bytes_in_use += rounded;
  stats_.bytes_peak = std::max(stats_.bytes_peak, stats_.bytes_in_use);
  stats_.bytes_by_purpose[static_cast<std::size_t>(block.purpose)] += rounded;
  return address;
}

void CachingAllocator::release(void* address) noexcept {
  const std::lock_guard lock(mutex_);
  const Block& block = blocks_.at(address);
  stats_.bytes_in_use -= block.rounded_bytes;
  stats_.bytes_by_purpose[static_cast<std::size_t>(block.purpose)] -= block.rounded_bytes;
  cached_[{block.pool, block.rounded_bytes}].push_back(address);
}

MemoryPool CachingAllocator::make_pool() {
  const std::lock_guard lock(mutex_);
  return static_cast<MemoryPool>(pools_++);
}

void CachingAllocator::trim(MemoryPool pool) {
  const std::lock_guard lock(mutex_);
  release_cached(pool);
}

// Under the lock.
void CachingAllocator::release_cached(MemoryPool pool) {
  for (auto& [key, cached] : cached_) {
    if (key.first != pool) continue;
    for (void* address : cached) {
      source_->release(address);
      blocks_.erase(address);
      stats_.bytes_reserved -= key.second;
    }
    cached.clear();
  }
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
