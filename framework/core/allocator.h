// Memory that is asked of the system once and then reused: a training step repeats the same sizes, so that after the
// first steps no allocation reaches the system, and every tensor of a step finds the address it had in the last one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
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
  // Whether blocks are cut from larger ones. The heap does that by itself, and sanitizers watch the ends of its blocks.
  virtual bool is_cut() const { return true; }
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

  // A block of at least `bytes`, aligned to 64. Thread-safe. It is the smallest unused one that is large enough, cut to
  // size; where blocks are not cut, one of the same size, rounded up to eighths of a power of two. Either way a step
  // that repeats the requests of the one before finds the same addresses. Counts for the purpose of the innermost
  // MemoryScope, and comes from the pool of the innermost MemoryPoolScope. When the memory is not there, gives back
  // what lies unused in the shared pool and tries again; throws lockstep::Error with table() when it is still not
  // there.
  void* allocate(std::size_t bytes);
  void release(void* address) noexcept;
  // A pool of its own, for a MemoryPoolScope.
  MemoryPool make_pool();
  // Asks the system for one stretch of so many bytes for `pool`, in which its blocks then lie close together.
  void reserve(MemoryPool pool, std::size_t bytes);
  // Starts a new measurement of bytes_peak.
  void reset_peak();
  // Gives back to the system what lies unused in `pool`. The device must have ended with it.
  void trim(MemoryPool pool);
  // Memory of the same device that a library took by itself.
  void count_outside(MemoryPurpose purpose, std::size_t bytes);
  Stats stats() const;
  // What the device's memory is used for, a line each.
  std::string table() const;

 private:
  // Part of a segment, which is what came from the source. Neighbours that are both unused become one.
  struct Block {
    std::size_t bytes;
    MemoryPool pool;
    bool small;  // cut from a segment for small blocks, so that they do not scatter over the large ones
    bool begins_segment;
    std::optional<MemoryPurpose> purpose;  // unset: unused
  };
  using Blocks = std::map<std::byte*, Block>;

  std::size_t rounded(std::size_t bytes) const;
  Blocks::iterator add_segment(MemoryPool pool, bool small, std::size_t bytes);
  Blocks::iterator unused_block(MemoryPool pool, bool small, std::size_t bytes);
  void cut(Blocks::iterator block, std::size_t bytes);
  void add_unused(Blocks::iterator block);
  void release_segments(MemoryPool pool);
  std::string out_of_memory(std::size_t bytes) const;

  std::unique_ptr<MemorySource> source_;
  mutable std::mutex mutex_;
  Blocks blocks_;  // all, by address
  using Size = std::tuple<MemoryPool, bool, std::size_t, std::byte*>;
  static Size size_of(const Blocks::value_type& block) {
    return {block.second.pool, block.second.small, block.second.bytes, block.first};
  }
  std::set<Size> unused_;  // the smallest first
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
