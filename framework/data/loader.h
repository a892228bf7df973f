// Batches of host memory, gathered ahead of the consumer.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "framework/core/host_memory.h"
#include "framework/data/dataset.h"
#include "framework/data/sampler.h"
#include "kernels/tensor_view.h"

namespace lockstep {

struct Batch {
  ConstView samples;       // (count, sample_shape...), u8 or f32 as the data set has them, not normalised
  ConstView labels;        // (count), i32
  std::int64_t count = 0;  // 0 after the last batch of a finite sampler
  std::int64_t first = 0;  // see SampledBatch
  Position position = {};
};

// Gives at least `bytes` of host memory aligned to 64, freed when the last copy of the pointer goes.
using HostAllocator = std::function<std::shared_ptr<void>(std::size_t bytes)>;

struct LoaderOptions {
  int slots = 3;                           // at least 2: one with the consumer, the others being filled
  int threads = 1;                         // that gather samples; the order of batches does not depend on it
  HostAllocator allocate = allocate_host;  // called once a slot, when the loader is made
};

// A ring of slots: threads fill the free ones in the sampler's order while the consumer works on one. Each slot is one
// allocation, samples first and labels behind them; after construction nothing is allocated.
class Loader {
 public:
  // The data set must outlive the loader. Throws std::invalid_argument for options out of range.
  Loader(const Dataset& dataset, std::unique_ptr<Sampler> sampler, LoaderOptions options = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Waits for the next batch, valid until the call after this one (an asynchronous copy out of it must have ended by
  // then). Throws what the sampler or the data set threw for this batch, also when called again; after the last batch
  // of a finite sampler it gives batches of count 0. For one consumer thread.
  const Batch& next();

 private:
  enum class SlotState : std::uint8_t { free, filling, full };
  struct Slot {
    std::shared_ptr<void> memory;
    std::vector<std::int64_t> indices;
    SlotState state = SlotState::free;  // guarded by mutex_; the rest belongs to whom the state says
    Batch batch;
    std::exception_ptr error;
  };

  void fill_slots();
  Slot* claim_slot();
  void gather(Slot& slot) const;
  void stop();
  Slot& slot_of(std::uint64_t batch_number) { return slots_[batch_number % slots_.size()]; }

  const Dataset& dataset_;
  std::unique_ptr<Sampler> sampler_;
  std::size_t labels_offset_bytes_ = 0;
  std::vector<Slot> slots_;

  // Held while a batch is sampled and given its slot, so that slots follow the sampler's order. A thread may wait for a
  // free slot under it, hence it is not the mutex that the consumer takes.
  std::mutex sampler_mutex_;
  std::uint64_t sampled_ = 0;
  bool sampler_ended_ = false;

  std::mutex mutex_;
  std::condition_variable slot_freed_;
  std::condition_variable slot_filled_;
  bool stopping_ = false;

  std::uint64_t consumed_ = 0;
  bool consumer_holds_slot_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
