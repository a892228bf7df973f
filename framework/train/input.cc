#include "framework/train/input.h"

#include "framework/core/context.h"
#include "framework/core/cuda_memory.h"
#include "framework/core/device_copy.h"
#include "framework/core/error.h"
#include "framework/ops/image.h"
#include "kernels/dispatch.h"
#include "kernels/image.h"

namespace lockstep {
namespace {

Tensor copy_to_device(const ConstView& host) {
  const Tensor tensor = Tensor::empty(host.shape, host.dtype);
  tensor.copy_from_host(host);
  return tensor;
}

}  // namespace

DeviceBatch to_device(const Batch& batch, const DatasetInfo& info) {
  return {.samples = normalize(copy_to_device(batch.samples), info.mean, info.stddev),
          .labels = copy_to_device(batch.labels),
          .first = batch.first};
}

TrainInput::TrainInput(const Dataset& dataset, Loader& loader, const DeviceBatch& target)
    : info_(dataset.info()), loader_(loader), batch_(target) {
  if constexpr (kernels::kHasCuda) {
    if (context().device() == DeviceType::cuda) {
      copies_ = Stream::create();
      for (Slot& slot : slots_) {
        slot = {.samples = Tensor::empty(target.samples.shape(), dataset.sample_dtype()),
                .labels = Tensor::empty(target.labels.shape(), DType::i32),
                .copied = Event::create(),
                .free = Event::create()};
      }
    }
  }
}

// The loader's next batch; the memory of the one before goes back to it.
const Batch& TrainInput::load() {
  const Batch& batch = loader_.next();
  expect(batch.count == batch_.samples.dim(0), "train input: expected batches of {} samples, got {}",
         batch_.samples.dim(0), batch.count);
  batch_.first = batch.first;
  return batch;
}

DeviceBatch TrainInput::next() {
  const ExecContext& exec = context().exec();
  if constexpr (kernels::kHasCuda) {
    if (exec.device == DeviceType::cuda) {
      if (const Event& copied = slots_[current_].copied; !copied.done()) copied.synchronize();
      const Batch& batch = load();
      current_ = (current_ + 1) % slots_.size();
      const Slot& slot = slots_[current_];
      slot.free.make_wait(copies_.get());
      cuda_copy(slot.samples.view().data, batch.samples.data, static_cast<std::size_t>(batch.samples.bytes()),
                copies_.get());
      cuda_copy(slot.labels.view().data, batch.labels.data, static_cast<std::size_t>(batch.labels.bytes()),
                copies_.get());
      slot.copied.record(copies_.get());

      slot.copied.make_wait(exec.stream);
      LOCKSTEP_DISPATCH(normalize, exec, slot.samples, info_.mean, info_.stddev, batch_.samples);
      copy_on_device(exec.device, batch_.labels.view().data, slot.labels.view().data,
                     static_cast<std::size_t>(batch.labels.bytes()));
      slot.free.record(exec.stream);
      return batch_;
    }
  }
  const Batch& batch = load();
  LOCKSTEP_DISPATCH(normalize, exec, batch.samples, info_.mean, info_.stddev, batch_.samples);
  batch_.labels.copy_from_host(batch.labels);
  return batch_;
}

}  // namespace lockstep
