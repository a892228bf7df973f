#include "framework/core/allocator.h"

#include <algorithm>
#include <bit>
#include <new>

#include "framework/core/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = 64;

class HeapSource final : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override {
    void* address = ::operator new(bytes, std::align_val_t{kAlignment}, std::nothrow);
    if (address == nullptr) throw Error(fmt::format("out of host memory: {} bytes asked for", bytes));
    return address;
  }
  void release(void* address) noexcept override { ::operator delete(address, std::align_val_t{kAlignment}); }
};

std::size_t round_up(std::size_t bytes) {
  const std::size_t step = std::max<std::size_t>(512, std::bit_floor(std::max<std::size_t>(bytes, 1)) / 8);
  return std::max(step, (bytes + step - 1) / step * step);
}

}  // namespace

CachingAllocator::CachingAllocator(std::unique_ptr<MemorySource> source) : source_(std::move(source)) {}

CachingAllocator::~CachingAllocator() {
  for (const auto& [size, blocks] : cached_) {
    for (void* block : blocks) source_->release(block);
  }
}

void* CachingAllocator::allocate(std::size_t bytes) {
  const std::size_t rounded = round_up(bytes);
  const std::lock_guard lock(mutex_);
  std::vector<void*>& blocks = cached_[rounded];
  void* address = nullptr;
  if (blocks.empty()) {
    address = source_->allocate(rounded);
    rounded_bytes_.emplace(address, rounded);
    ++stats_.system_allocations;
    stats_.bytes_reserved += rounded;
    blocks.reserve(blocks.capacity() + 1);  // so that release() never allocates
  } else {
    address = blocks.back();
    blocks.pop_back();
  }
  stats_.bytes_in_use += rounded;
  stats_.bytes_peak = std::max(stats_.bytes_peak, stats_.bytes_in_use);
  return address;
}

void CachingAllocator::release(void* address) noexcept {
  const std::lock_guard lock(mutex_);
  const std::size_t rounded = rounded_bytes_.at(address);
  stats_.bytes_in_use -= rounded;
  cached_[rounded].push_back(address);
}

CachingAllocator::Stats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

CachingAllocator& device_allocator(DeviceType device) {
  expect(device == DeviceType::cpu, "allocator: expected a device of this build (cpu), got cuda");
  static auto* heap = new CachingAllocator(std::make_unique<HeapSource>());
  return *heap;
}

}  // namespace lockstep
