// Memory that is asked of the system once and then reused: a training step repeats the same sizes, so that after the
// first steps no allocation reaches the system, and every tensor of a step finds the address it had in the last one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/core/memory_purpose.h"
#include "kernels/exec_context.h"

namespace lockstep {

// A set of blocks that only its own scope reuses: what a captured graph works on must go to nobody else between
// replays.
enum class MemoryPool : int { shared = 0 };

// From which pool the calling thread allocates until the scope ends. A block goes back to the pool it came from.
class MemoryPoolScope {
 public:
  explicit MemoryPoolScope(MemoryPool pool) : previous_(std::exchange(current_, pool)) {}
  ~MemoryPoolScope() { current_ = previous_; }
  MemoryPoolScope(const MemoryPoolScope&) = delete;
  MemoryPoolScope& operator=(const MemoryPoolScope&) = delete;

  static MemoryPool current() { return current_; }

 private:
  inline static thread_local MemoryPool current_ = MemoryPool::shared;

  MemoryPool previous_;
};

// Where the bytes come from: the heap, or a GPU. The only thing that differs between devices.
class MemorySource {
 public:
  struct Capacity {
    std::string name;             // "GPU 0 (NVIDIA H200)"
    std::size_t total_bytes = 0;  // 0: not known
    std::size_t free_bytes = 0;
  };

  virtual ~MemorySource() = default;
  // Null when the memory is not there.
  virtual void* allocate(std::size_t bytes) = 0;
  // Waits until the device has ended with it.
  virtual void release(void* address) noexcept = 0;
  virtual Capacity capacity() const = 0;
};

class CachingAllocator {
 public:
  struct Stats {
    std::int64_t system_allocations = 0;  // calls that reached the memory source
    std::size_t bytes_in_use = 0;
    std::size_t bytes_peak = 0;
    std::size_t bytes_reserved = 0;                               // in use or cached
    std::array<std::size_t, kMemoryPurposes> bytes_by_purpose{};  // in use, and what others took
  };

  explicit CachingAllocator(std::unique_ptr<MemorySource> source);
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // A block of at least `bytes`, aligned to 64. Thread-safe. Blocks are rounded up to eighths of a power of two and
  // reused only for requests of the same rounded size, so that reuse is the same in every step. Counts for the purpose
  // of the innermost MemoryScope, and comes from the pool of the innermost MemoryPoolScope. When the memory is not
  // there, gives back what lies unused in the shared pool and tries again; throws lockstep::Error with table() when it
  // is still not there.
  void* allocate(std::size_t bytes);
  void release(void* address) noexcept;
  // A pool of its own, for a MemoryPoolScope.
  MemoryPool make_pool();
  // Gives back to the system what lies unused in `pool`. The device must have ended with it.
  void trim(MemoryPool pool);
  // Memory of the same device that a library took by itself.
  void count_outside(MemoryPurpose purpose, std::size_t bytes);
  Stats stats() const;
  // What the device's memory is used for, a line each.
  std::string table() const;

 private:
  struct Block {
    std::size_t rounded_bytes;
    MemoryPurpose purpose;
    MemoryPool pool;
  };
  using Key = std::pair<MemoryPool, std::size_t>;  // pool and rounded size

  void release_cached(MemoryPool pool);
  std::string out_of_memory(std::size_t bytes) const;

  std::unique_ptr<MemorySource> source_;
  mutable std::mutex mutex_;
  std::map<Key, std::vector<void*>> cached_;
  std::unordered_map<void*, Block> blocks_;  // every block that came from the source
  int pools_ = 1;
  std::size_t bytes_outside_ = 0;
  Stats stats_;
};

// The allocator of a device, shared by the whole process and never destroyed (tensors may outlive main). For GPUs: of
// the one that the process uses.
CachingAllocator& device_allocator(DeviceType device);

// A block of it that goes back with its last holder.
std::shared_ptr<void> allocate_shared(DeviceType device, std::size_t bytes);

}  // namespace lockstep
