#include "framework/interconnect/all_reduce_sweep.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "framework/core/context.h"
#include "framework/core/device_copy.h"
#include "framework/core/error.h"
#include "framework/core/statistics.h"
#include "framework/core/stream.h"
#include "framework/interconnect/cost_model.h"

namespace lockstep {
namespace {

using Clock = Work::Clock;

double us_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

// Whole numbers so small that their sum over 16 ranks is exact in bf16.
constexpr std::int64_t kValues = 13;
float value_of(std::int64_t element, int rank) { return static_cast<float>((element + 5 * rank) % kValues); }

float reduced_value(std::int64_t element, ReduceOp op, int ranks) {
  float result = value_of(element, 0);
  for (int rank = 1; rank < ranks; ++rank) {
    const float value = value_of(element, rank);
    result = op == ReduceOp::sum   ? result + value
             : op == ReduceOp::max ? std::max(result, value)
                                   : std::min(result, value);
  }
  return result;
}

// Exact for the values above.
template <class T>
T from_float(float value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16)};
  } else {
    return value;
  }
}

template <class T>
Tensor input_of(int rank, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = from_float<T>(value_of(i, rank));
  return Tensor::from_host(std::span<const T>(values), {count});
}

template <class T>
std::int64_t count_wrong(const Tensor& result, ReduceOp op, int ranks) {
  const std::vector<T> values = result.to_host<T>();
  // The pattern repeats, so that a few values are to be computed, not one for each element.
  std::vector<T> expected;
  for (std::int64_t i = 0; i < kValues; ++i) expected.push_back(from_float<T>(reduced_value(i, op, ranks)));
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T& right = expected[i % static_cast<std::size_t>(kValues)];
    if (std::memcmp(&values[i], &right, sizeof(T)) != 0) ++wrong;
  }
  return wrong;
}

// Each from the end of the one before to its own, in microseconds: by the host's clock, or on a GPU by its compute
// stream, which waits for each.
std::vector<double> single_times(const std::function<Work()>& issue, int count) {
  std::vector<double> times;
  if constexpr (kernels::kHasCuda) {
    if (context().device() == DeviceType::cuda) {
      void* const stream = context().exec().stream;
      std::vector<Event> marks;  // made first: the host is not to hold up what it times
      for (int i = 0; i <= count; ++i) marks.push_back(Event::create(EventTiming::on));
      for (const Event& mark : marks) {  // one more than is timed, so that the host is ahead of the first that is
        issue().wait();
        mark.record(stream);
      }
      context().synchronize();
      for (std::size_t i = 1; i < marks.size(); ++i) times.push_back(1e3 * marks[i].milliseconds_since(marks[i - 1]));
      return times;
    }
  }
  std::vector<Work> works;
  Clock::time_point before = Clock::now();
  for (int i = 0; i < count; ++i) works.push_back(issue());
  works.back().wait();
  for (const Work& work : works) {
    const Clock::time_point end = work.finished_at().value_or(before);
    times.push_back(us_between(before, end));
    before = end;
  }
  return times;
}

}  // namespace

AllReduceSweep::AllReduceSweep(ProcessGroup& group, std::int64_t most_bytes, const AllReduceTest& test)
    : group_(group), test_(test) {
  expect(test.dtype == DType::f32 || test.dtype == DType::bf16, "all-reduce sweep: expected f32 or bf16, got {}",
         dtype_name(test.dtype));
  expect(test.iterations >= 1 && test.warmup >= 0, "all-reduce sweep: expected at least 1 iteration, got {} and {}",
         test.iterations, test.warmup);
  expect(group.size() <= 16, "all-reduce sweep: expected at most 16 ranks, whose sums are exact in bf16, got {}",
         group.size());
  const std::int64_t count = most_bytes / dtype_bytes(test.dtype);
  in_ = test.dtype == DType::f32 ? input_of<float>(group.rank(), count) : input_of<bfloat16>(group.rank(), count);
  out_ = Tensor::zeros({count}, test.dtype);
}

AllReduceRow AllReduceSweep::measure(std::int64_t bytes) {
  const std::int64_t count = bytes / dtype_bytes(test_.dtype);
  expect(count >= 1 && count <= in_.numel(), "all-reduce sweep: expected {} to {} bytes, got {}",
         dtype_bytes(test_.dtype), in_.view().bytes(), bytes);
  return {count * dtype_bytes(test_.dtype), measure(count, false), measure(count, true)};
}

AllReduceTimes AllReduceSweep::measure(std::int64_t count, bool in_place) {
  const Tensor in = in_.slice(0, count);
  const Tensor out = out_.slice(0, count);
  const auto issue = [&] { return group_.all_reduce(in_place ? out : in, out, test_.op); };
  AllReduceTimes times;
  times.wrong = test_.check ? wrong_elements(count, in_place) : -1;

  for (int i = 0; i < test_.warmup; ++i) issue().wait();
  group_.barrier().wait();
  context().synchronize();
  const Clock::time_point start = Clock::now();
  Work last;
  for (int i = 0; i < test_.iterations; ++i) last = issue();
  last.wait();
  context().synchronize();
  const double mean = us_between(start, Clock::now()) / test_.iterations;
  std::vector<double> single = single_times(issue, test_.iterations);
  group_.check();

  times.us = over_ranks({mean})[0] / group_.size();
  const double mine = group_.rank() == 0 ? 1.0 : 0.0;
  const std::vector<double> of_rank_0 =
      over_ranks({mine * *std::min_element(single.begin(), single.end()), mine * median(single),
                  mine * *std::max_element(single.begin(), single.end())});
  times.min_us = of_rank_0[0];
  times.median_us = of_rank_0[1];
  times.max_us = of_rank_0[2];
  return times;
}

std::int64_t AllReduceSweep::wrong_elements(std::int64_t count, bool in_place) {
  const Tensor in = in_.slice(0, count);
  const Tensor out = out_.slice(0, count);
  if (in_place) {
    copy_on_device(out.device(), out.view().data, in.view().data, static_cast<std::size_t>(in.view().bytes()));
  } else {
    out.fill_zero();
  }
  group_.all_reduce(in_place ? out : in, out, test_.op).wait();
  const std::int64_t wrong = test_.dtype == DType::f32 ? count_wrong<float>(out, test_.op, group_.size())
                                                       : count_wrong<bfloat16>(out, test_.op, group_.size());
  return static_cast<std::int64_t>(over_ranks({static_cast<double>(wrong)})[0]);
}

// Their sums.
std::vector<double> AllReduceSweep::over_ranks(std::vector<double> values) {
  const Tensor tensor = Tensor::from_host(std::span<const double>(values), {std::ssize(values)});
  group_.all_reduce(tensor).wait();
  return tensor.to_host<double>();
}

double all_reduce_busbw(std::int64_t bytes, double us, int ranks) {
  return 1e-3 * static_cast<double>(bytes) * all_reduce_traffic(ranks).bytes / us;
}

}  // namespace lockstep
