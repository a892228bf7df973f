// Memory that is asked of the system once and then reused: a training step repeats the same sizes, so that after the
// first steps no allocation reaches the system, and every tensor of a step finds the address it had in the last one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "kernels/exec_context.h"

namespace lockstep {

// Where the bytes come from: the heap, or a GPU. The only thing that differs between devices.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // Throws lockstep::Error when the memory is not there.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* address) noexcept = 0;
};

class CachingAllocator {
 public:
  struct Stats {
    std::int64_t system_allocations = 0;  // calls that reached the memory source
    std::size_t bytes_in_use = 0;
    std::size_t bytes_peak = 0;
    std::size_t bytes_reserved = 0;  // in use or cached
  };

  explicit CachingAllocator(std::unique_ptr<MemorySource> source);
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // A block of at least `bytes`, aligned to 64. Thread-safe. Blocks are rounded up to eighths of a power of two and
  // reused only for requests of the same rounded size, so that reuse is the same in every step.
  void* allocate(std::size_t bytes);
  void release(void* address) noexcept;
  Stats stats() const;

 private:
  std::unique_ptr<MemorySource> source_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> cached_;      // by rounded size
  std::unordered_map<void*, std::size_t> rounded_bytes_;  // of every block that came from the source
  Stats stats_;
};

// The allocator of a device, shared by the whole process and never destroyed (tensors may outlive main).
CachingAllocator& device_allocator(DeviceType device);

}  // namespace lockstep
