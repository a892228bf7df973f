#include "framework/data/loader.h"

#include <utility>

#include "framework/core/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kAlignmentBytes = 64;

}  // namespace

Loader::Loader(const Dataset& dataset, std::unique_ptr<Sampler> sampler, LoaderOptions options)
    : dataset_(dataset), sampler_(std::move(sampler)) {
  expect(options.slots >= 2, "loader: expected at least 2 slots, got {}", options.slots);
  expect(options.threads >= 1, "loader: expected at least 1 thread, got {}", options.threads);
  const auto batch_size = static_cast<std::size_t>(sampler_->batch_size());
  const std::size_t samples_bytes = batch_size * static_cast<std::size_t>(dataset.sample_bytes());
  labels_offset_bytes_ = (samples_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;

  slots_.resize(static_cast<std::size_t>(options.slots));
  for (Slot& slot : slots_) {
    slot.memory = options.allocate(labels_offset_bytes_ + batch_size * sizeof(std::int32_t));
    slot.indices.resize(batch_size);
  }
  try {
    for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { fill_slots(); });
  } catch (...) {
    stop();
    throw;
  }
}

Loader::~Loader() { stop(); }

void Loader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  slot_freed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

const Batch& Loader::next() {
  std::unique_lock lock(mutex_);
  if (consumer_holds_slot_) {
    slot_of(consumed_++).state = SlotState::free;
    consumer_holds_slot_ = false;
    slot_freed_.notify_one();
  }
  Slot& slot = slot_of(consumed_);
  slot_filled_.wait(lock, [&] { return slot.state == SlotState::full; });
  if (slot.error) std::rethrow_exception(slot.error);
  // An error or the end is never given back, so that a further call meets it again.
  consumer_holds_slot_ = slot.batch.count > 0;
  return slot.batch;
}

void Loader::fill_slots() {
  while (Slot* slot = claim_slot()) {
    if (!slot->error) {
      try {
        gather(*slot);
      } catch (...) {
        slot->error = std::current_exception();
      }
    }
    const std::lock_guard lock(mutex_);
    slot->state = SlotState::full;
    slot_filled_.notify_one();
  }
}

// The slot of the sampler's next batch, with its indices; null when there is nothing more to fill.
Loader::Slot* Loader::claim_slot() {
  const std::lock_guard order(sampler_mutex_);
  if (sampler_ended_) return nullptr;
  Slot& slot = slot_of(sampled_);
  {
    std::unique_lock lock(mutex_);
    slot_freed_.wait(lock, [&] { return stopping_ || slot.state == SlotState::free; });
    if (stopping_) return nullptr;
    slot.state = SlotState::filling;
  }
  ++sampled_;
  try {
    const SampledBatch sampled = sampler_->next(slot.indices);
    slot.batch.count = sampled.count;
    slot.batch.first = sampled.first;
    slot.batch.position = sampled.position;
    sampler_ended_ = sampled.count == 0;
  } catch (...) {
    slot.error = std::current_exception();
    sampler_ended_ = true;
  }
  return &slot;
}

void Loader::gather(Slot& slot) const {
  auto* samples = static_cast<std::byte*>(slot.memory.get());
  auto* labels = reinterpret_cast<std::int32_t*>(samples + labels_offset_bytes_);
  const auto sample_bytes = static_cast<std::size_t>(dataset_.sample_bytes());
  const auto count = static_cast<std::size_t>(slot.batch.count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t index = slot.indices[i];
    expect(index >= 0 && index < dataset_.size(), "{}: expected a sample index below {}, got {} from the sampler",
           dataset_.info().name, dataset_.size(), index);
    std::int32_t& label = labels[i];
    label = -1;  // a data set that forgets to write it is found out
    dataset_.read_bytes(index, {samples + i * sample_bytes, sample_bytes}, label);
    expect(label >= 0 && label < dataset_.num_classes(), "{}: expected labels between 0 and {}, got {} for sample {}",
           dataset_.info().name, dataset_.num_classes() - 1, label, index);
  }
  slot.batch.samples = ConstView(samples, dataset_.sample_dtype(), dataset_.batch_shape(slot.batch.count));
  slot.batch.labels = ConstView(labels, DType::i32, Shape{slot.batch.count});
}

}  // namespace lockstep
