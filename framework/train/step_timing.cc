#include "framework/train/step_timing.h"

#include <chrono>
#include <cstdint>
#include <span>
#include <utility>

#include "framework/core/context.h"
#include "framework/core/error.h"
#include "framework/core/statistics.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// So small that nothing grows without bounds: what is learned is of no interest.
constexpr double kLearningRate = 1e-4;

std::vector<double> slowest_of_ranks(std::vector<double> values, ProcessGroup& group) {
  const Tensor tensor = Tensor::from_host(std::span<const double>(values), {std::ssize(values)});
  group.all_reduce(tensor, ReduceOp::max).wait();
  values = tensor.to_host<double>();
  group.check();
  return values;
}

// Every moment of a timeline in one order. `visit` may change them.
template <class Timeline, class Visit>
void visit_moments(Timeline& timeline, Visit visit) {
  visit(timeline.forward_ms);
  visit(timeline.backward_ms);
  visit(timeline.step_ms);
  for (auto& bucket : timeline.buckets) {
    visit(bucket.ready_ms);
    visit(bucket.launched_ms);
    visit(bucket.finished_ms);
  }
}

void check(const StepCount& count) {
  expect(count.warmup >= 1 && count.timed >= 1,
         "step timing: expected at least 1 step before and 1 timed, got {} and {}", count.warmup, count.timed);
}

}  // namespace

std::vector<double> time_steps(TrainStep& step, const DeviceBatch& batch, ProcessGroup& group, const StepCount& count) {
  check(count);
  const DeviceBatch& in_place = step.prepare(batch);
  const int total = count.warmup + count.timed;
  std::vector<double> times;
  Clock::time_point last = Clock::now();
  for (int i = 1; i <= total; ++i) {
    if (!on_gpu()) {
      group.barrier().wait();
      last = Clock::now();
    }
    step.advance([&] { return in_place; }, kLearningRate, i == total,
                 [&](const StepReport&) {
                   const Clock::time_point now = Clock::now();
                   times.push_back(std::chrono::duration<double, std::milli>(now - std::exchange(last, now)).count());
                 });
  }
  times.erase(times.begin(), times.begin() + count.warmup);
  return slowest_of_ranks(std::move(times), group);
}

StepTimeline measure_timeline(TrainStep& step, const DeviceBatch& batch, ProcessGroup& group, const StepCount& count) {
  check(count);
  const DeviceBatch& in_place = step.prepare(batch);
  std::vector<std::vector<double>> moments;  // of each step
  StepTimeline timeline;
  for (int i = 0; i < count.warmup + count.timed; ++i) {
    group.barrier().wait();
    context().synchronize();
    step.run([&] { return in_place; }, kLearningRate);
    if (i < count.warmup) continue;
    timeline = step.timeline();
    std::vector<double>& of_step = moments.emplace_back();
    visit_moments(timeline, [&](double ms) { of_step.push_back(ms); });
    of_step = slowest_of_ranks(std::move(of_step), group);
  }
  std::size_t place = 0;
  visit_moments(timeline, [&](double& ms) {
    std::vector<double> values;
    for (const std::vector<double>& of_step : moments) values.push_back(of_step[place]);
    ms = median(values);
    ++place;
  });
  return timeline;
}

}  // namespace lockstep
