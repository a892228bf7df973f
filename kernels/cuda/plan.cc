#include "kernels/cuda/plan.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "kernels/cuda/check.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr float kMeasuredMs = 1.0F;  // that one measurement of a candidate is to take
constexpr int kMostRepeats = 20;
constexpr int kMeasurements = 3;  // of those that come near the best; the shortest counts
constexpr double kNear = 1.15;
constexpr double kHopeless = 3;  // times the best so far: not measured further

struct Record {
  std::mutex mutex;
  std::map<std::string, int> choices;
  std::map<std::string, PlanTimes> times;
};

Record& record() {
  static Record instance;
  return instance;
}

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};
template <class T, auto destroy>
using Handle = std::unique_ptr<std::remove_pointer_t<T>, Destroy<destroy>>;

Handle<cudaEvent_t, cudaEventDestroy> make_event() {
  cudaEvent_t event = nullptr;
  LOCKSTEP_CUDA_CHECK(cudaEventCreate(&event));
  return Handle<cudaEvent_t, cudaEventDestroy>(event);
}

// A candidate's work on a stream of its own, while exec.stream is idle.
class Measurement {
 public:
  Measurement(const ExecContext& exec, const std::function<void(const ExecContext&)>& work)
      : begin_(make_event()), end_(make_event()) {
    LOCKSTEP_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(exec.stream)));
    cudaStream_t created = nullptr;
    LOCKSTEP_CUDA_CHECK(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking));
    stream_.reset(created);
    ExecContext own = exec;
    own.stream = stream_.get();
    work_ = [work, own] { work(own); };
    work_();  // loads the kernels, which a capture cannot
    once_ms_ = timed(work_);
  }

  // Milliseconds of one execution, launched by the host.
  double once_ms() const { return once_ms_; }

  // Milliseconds of one of several executions in a graph: launches one by one take longer than small kernels run.
  double measure() {
    if (graph_ == nullptr) {
      repeats_ = std::clamp(static_cast<int>(kMeasuredMs / once_ms_), 2, kMostRepeats);
      capture();
      LOCKSTEP_CUDA_CHECK(cudaGraphLaunch(graph_.get(), stream_.get()));
    }
    return timed([this] { LOCKSTEP_CUDA_CHECK(cudaGraphLaunch(graph_.get(), stream_.get())); }) / repeats_;
  }

 private:
  double timed(const std::function<void()>& work) {
    LOCKSTEP_CUDA_CHECK(cudaEventRecord(begin_.get(), stream_.get()));
    work();
    LOCKSTEP_CUDA_CHECK(cudaEventRecord(end_.get(), stream_.get()));
    LOCKSTEP_CUDA_CHECK(cudaEventSynchronize(end_.get()));
    float taken = 0;
    LOCKSTEP_CUDA_CHECK(cudaEventElapsedTime(&taken, begin_.get(), end_.get()));
    return taken;
  }

  void capture() {
    cudaGraph_t captured = nullptr;
    LOCKSTEP_CUDA_CHECK(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal));
    try {
      for (int i = 0; i < repeats_; ++i) work_();
    } catch (...) {
      if (cudaStreamEndCapture(stream_.get(), &captured) == cudaSuccess) cudaGraphDestroy(captured);
      cudaGetLastError();  // of the capture that failed: not the next call's
      throw;
    }
    LOCKSTEP_CUDA_CHECK(cudaStreamEndCapture(stream_.get(), &captured));
    const Handle<cudaGraph_t, cudaGraphDestroy> graph(captured);
    cudaGraphExec_t instance = nullptr;
    LOCKSTEP_CUDA_CHECK(cudaGraphInstantiate(&instance, graph.get(), 0));
    graph_.reset(instance);
  }

  Handle<cudaStream_t, cudaStreamDestroy> stream_;
  Handle<cudaEvent_t, cudaEventDestroy> begin_, end_;
  Handle<cudaGraphExec_t, cudaGraphExecDestroy> graph_;
  std::function<void()> work_;
  double once_ms_ = 0;
  int repeats_ = 1;
};

// What targets hold that are added to, put back when this goes. In the host's memory: the GPU's may be full.
class Kept {
 public:
  Kept(const ExecContext& exec, Targets targets) : stream_(static_cast<cudaStream_t>(exec.stream)) {
    for (const GradView& target : targets) {
      if (!target || !target.accumulate) continue;
      auto& [view, copy] = copies_.emplace_back(target.view, static_cast<std::size_t>(target.view.bytes()));
      LOCKSTEP_CUDA_CHECK(cudaMemcpyAsync(copy.data(), view.data, copy.size(), cudaMemcpyDeviceToHost, stream_));
    }
    LOCKSTEP_CUDA_CHECK(cudaStreamSynchronize(stream_));
  }
  ~Kept() {
    for (const auto& [view, copy] : copies_) {
      cudaMemcpyAsync(view.data, copy.data(), copy.size(), cudaMemcpyHostToDevice, stream_);
    }
    cudaStreamSynchronize(stream_);
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

 private:
  cudaStream_t stream_;
  std::vector<std::pair<View, std::vector<std::byte>>> copies_;
};

constexpr double kNever = std::numeric_limits<double>::infinity();

std::vector<int> all(const Candidates& candidates) {
  std::vector<int> numbers(static_cast<std::size_t>(candidates.count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Runs `body` for each candidate and returns those that came through it; where none did, throws what the last one said.
std::vector<int> for_candidates(const std::string& problem, const std::vector<int>& candidates,
                                const std::function<void(int candidate)>& body) {
  std::string failure;
  std::vector<int> good;
  for (const int candidate : candidates) {
    try {
      body(candidate);
      good.push_back(candidate);
    } catch (const std::runtime_error& error) {
      failure = error.what();
    }
  }
  if (good.empty()) throw std::runtime_error(problem + ": expected an algorithm that runs, got: " + failure);
  return good;
}

// Milliseconds of each candidate; those that cannot run or be captured, or are far behind, take for ever.
std::vector<double> measured(const ExecContext& exec, const std::string& problem, const Candidates& candidates,
                             Targets targets) {
  const Kept kept(exec, targets);
  // All run once before any is captured: the workspace, whose address a graph keeps, grows no more then.
  std::vector<std::unique_ptr<Measurement>> running(static_cast<std::size_t>(candidates.count));
  const auto measurement = [&](int i) -> std::unique_ptr<Measurement>& { return running[static_cast<std::size_t>(i)]; };
  std::vector<int> order = for_candidates(problem, all(candidates), [&](int i) {
    measurement(i) =
        std::make_unique<Measurement>(exec, [&candidates, i](const ExecContext& own) { candidates.run(i, own); });
  });
  std::ranges::sort(order, {}, [&](int i) { return measurement(i)->once_ms(); });
  std::vector<double> times(running.size(), kNever);
  const auto measure = [&](int i) {
    double& time = times[static_cast<std::size_t>(i)];
    time = std::min(time, measurement(i)->measure());
  };
  double best_once = kNever;  // of those that can be captured
  order = for_candidates(problem, order, [&](int i) {
    if (measurement(i)->once_ms() > kHopeless * best_once) return;
    measure(i);
    best_once = std::min(best_once, measurement(i)->once_ms());
  });
  for (int repeat = 1; repeat < kMeasurements; ++repeat) {
    const double near = kNear * *std::ranges::min_element(times);  // up to here it is worth to measure again
    for (const int i : order) {
      if (times[static_cast<std::size_t>(i)] <= near) measure(i);
    }
  }
  return times;
}

int first_that_runs(const ExecContext& exec, const std::string& problem, const Candidates& candidates,
                    Targets targets) {
  const Kept kept(exec, targets);
  int first = -1;
  for_candidates(problem, all(candidates), [&](int candidate) {
    if (first >= 0) return;
    candidates.run(candidate, exec);
    first = candidate;
  });
  return first;
}

}  // namespace

void expect_planning(const ExecContext& exec, const std::string& problem) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  LOCKSTEP_CUDA_CHECK(cudaStreamIsCapturing(static_cast<cudaStream_t>(exec.stream), &status));
  if (status != cudaStreamCaptureStatusNone) {
    throw std::runtime_error(problem + ": expected a plan from the steps before the capture, got none");
  }
  if (!exec.may_plan) {
    throw std::runtime_error(problem +
                             ": expected a plan from the plan phase, got none; it may not be made while "
                             "collectives may be under way: meet it in plan_together() first");
  }
}

int choose(const ExecContext& exec, const std::string& problem, const Candidates& candidates, Targets targets) {
  if (const std::optional<int> choice = plan_choice(problem); choice && *choice < candidates.count) return *choice;
  expect_planning(exec, problem);
  int best = 0;
  PlanTimes report{.problem = problem, .choice = 0, .candidates = {}};
  if (exec.deterministic) {
    best = first_that_runs(exec, problem, candidates, targets);
  } else if (candidates.count > 1) {
    const std::vector<double> times = measured(exec, problem, candidates, targets);
    best = static_cast<int>(std::ranges::min_element(times) - times.begin());
    for (int i = 0; i < candidates.count; ++i) {
      report.candidates.emplace_back(candidates.name(i), times[static_cast<std::size_t>(i)]);
    }
  }
  report.choice = best;
  const std::lock_guard lock(record().mutex);
  record().choices[problem] = best;
  record().times[problem] = report;
  return best;
}

std::vector<PlanTimes> plan_times() {
  const std::lock_guard lock(record().mutex);
  std::vector<PlanTimes> times;
  for (const auto& [problem, report] : record().times) times.push_back(report);
  return times;
}

std::optional<int> plan_choice(const std::string& problem) {
  const std::lock_guard lock(record().mutex);
  const auto found = record().choices.find(problem);
  return found == record().choices.end() ? std::nullopt : std::optional(found->second);
}

std::string plan_choices() {
  const std::lock_guard lock(record().mutex);
  std::ostringstream lines;
  for (const auto& [problem, choice] : record().choices) lines << choice << ' ' << problem << '\n';
  return lines.str();
}

void add_plan_choices(const std::string& lines) {
  std::istringstream stream(lines);
  std::map<std::string, int> choices;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream fields(line);
    int choice = -1;
    std::string problem;
    if (stream.eof() || !(fields >> choice) || choice < 0 || !std::getline(fields >> std::ws, problem)) {
      throw std::invalid_argument("plan choices: expected whole lines like '2 matmul ...', got '" + line + "'");
    }
    choices[problem] = choice;
  }
  const std::lock_guard lock(record().mutex);
  for (const auto& [problem, choice] : choices) record().choices[problem] = choice;
}

}  // namespace lockstep::kernels::cuda
