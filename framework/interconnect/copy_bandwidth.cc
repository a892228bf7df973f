#include "framework/interconnect/copy_bandwidth.h"

#include <cstddef>
#include <vector>

#include "framework/core/context.h"
#include "framework/core/cuda_memory.h"
#include "framework/core/statistics.h"
#include "framework/core/stream.h"
#include "framework/core/tensor.h"

namespace lockstep {
namespace {

constexpr int kCopies = 8;

double gb_s(void* to, const void* from, std::int64_t bytes) {
  void* const stream = context().exec().stream;
  std::vector<Event> marks;
  for (int i = 0; i <= kCopies; ++i) {
    cuda_copy(to, from, static_cast<std::size_t>(bytes), stream);  // the first warms up
    marks.push_back(Event::create(EventTiming::on));
    marks.back().record(stream);
  }
  context().synchronize();
  std::vector<double> rates;
  for (std::size_t i = 1; i < marks.size(); ++i) {
    rates.push_back(1e-6 * static_cast<double>(bytes) / marks[i].milliseconds_since(marks[i - 1]));
  }
  return median(rates);
}

}  // namespace

CopyBandwidth measure_copies(std::int64_t bytes) {
  const std::shared_ptr<void> host = allocate_pinned(static_cast<std::size_t>(bytes));
  const Tensor device = Tensor::zeros({bytes}, DType::u8);
  return {.host_to_device = gb_s(device.view().data, host.get(), bytes),
          .device_to_host = gb_s(host.get(), device.view().data, bytes)};
}

}  // namespace lockstep
