#include "kernels/cuda/plan.h"

#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>

#include "kernels/cuda/check.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kRepeats = 10;      // of a candidate in one measurement
constexpr int kMeasurements = 3;  // of which the best counts

struct Record {
  std::mutex mutex;
  std::map<std::string, int> choices;
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

// The work kRepeats times in a row as a graph: launches one by one would take longer than small kernels run.
Handle<cudaGraphExec_t, cudaGraphExecDestroy> repeated(const ExecContext& exec, const std::function<void()>& work) {
  const auto stream = static_cast<cudaStream_t>(exec.stream);
  cudaGraph_t captured = nullptr;
  LOCKSTEP_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    for (int i = 0; i < kRepeats; ++i) work();
  } catch (...) {
    if (cudaStreamEndCapture(stream, &captured) == cudaSuccess) cudaGraphDestroy(captured);
    throw;
  }
  LOCKSTEP_CUDA_CHECK(cudaStreamEndCapture(stream, &captured));
  const Handle<cudaGraph_t, cudaGraphDestroy> graph(captured);
  cudaGraphExec_t instance = nullptr;
  LOCKSTEP_CUDA_CHECK(cudaGraphInstantiate(&instance, graph.get(), 0));
  return Handle<cudaGraphExec_t, cudaGraphExecDestroy>(instance);
}

// Milliseconds that the work takes, run on a stream of its own while exec.stream is idle.
double milliseconds(const ExecContext& exec, const std::function<void(const ExecContext&)>& work) {
  LOCKSTEP_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(exec.stream)));
  cudaStream_t created = nullptr;
  LOCKSTEP_CUDA_CHECK(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking));
  const Handle<cudaStream_t, cudaStreamDestroy> stream(created);
  ExecContext own = exec;
  own.stream = stream.get();

  work(own);  // loads the kernels, which a capture cannot
  LOCKSTEP_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
  const auto graph = repeated(own, [&] { work(own); });
  LOCKSTEP_CUDA_CHECK(cudaGraphLaunch(graph.get(), stream.get()));
  const auto begin = make_event();
  const auto end = make_event();
  float best = std::numeric_limits<float>::infinity();
  for (int i = 0; i < kMeasurements; ++i) {
    LOCKSTEP_CUDA_CHECK(cudaEventRecord(begin.get(), stream.get()));
    LOCKSTEP_CUDA_CHECK(cudaGraphLaunch(graph.get(), stream.get()));
    LOCKSTEP_CUDA_CHECK(cudaEventRecord(end.get(), stream.get()));
    LOCKSTEP_CUDA_CHECK(cudaEventSynchronize(end.get()));
    float taken = 0;
    LOCKSTEP_CUDA_CHECK(cudaEventElapsedTime(&taken, begin.get(), end.get()));
    best = std::min(best, taken);
  }
  return static_cast<double>(best) / kRepeats;
}

// A copy of memory on the GPU, put back when this goes.
class Kept {
 public:
  Kept(const ExecContext& exec, const GradView& target) : exec_(exec), view_(target.view) {
    if (!target.accumulate) return;
    void* memory = nullptr;
    LOCKSTEP_CUDA_CHECK(cudaMalloc(&memory, bytes()));
    copy_.reset(memory);
    LOCKSTEP_CUDA_CHECK(cudaMemcpyAsync(memory, view_.data, bytes(), cudaMemcpyDeviceToDevice, stream()));
  }
  ~Kept() {
    if (copy_ == nullptr) return;
    cudaMemcpyAsync(view_.data, copy_.get(), bytes(), cudaMemcpyDeviceToDevice, stream());
    cudaStreamSynchronize(stream());
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(view_.bytes()); }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(exec_.stream); }

  const ExecContext& exec_;
  View view_;
  std::unique_ptr<void, Destroy<cudaFree>> copy_;
};

int fastest(const ExecContext& exec, const std::string& problem, int count, const RunCandidate& run,
            const GradView& target) {
  const Kept kept(exec, target);
  int best = -1;
  double shortest = std::numeric_limits<double>::infinity();
  std::string failure;
  for (int candidate = 0; candidate < count; ++candidate) {
    try {
      const double taken = milliseconds(exec, [&](const ExecContext& own) { run(candidate, own); });
      if (taken < shortest) {
        shortest = taken;
        best = candidate;
      }
    } catch (const std::runtime_error& error) {
      failure = error.what();
    }
  }
  if (best < 0) throw std::runtime_error(problem + ": expected an algorithm that runs, got: " + failure);
  return best;
}

}  // namespace

void expect_planning(const ExecContext& exec, const std::string& problem) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  LOCKSTEP_CUDA_CHECK(cudaStreamIsCapturing(static_cast<cudaStream_t>(exec.stream), &status));
  if (status != cudaStreamCaptureStatusNone) {
    throw std::runtime_error(problem + ": expected a plan from the steps before the capture, got none");
  }
}

int choose(const ExecContext& exec, const std::string& problem, int count, const RunCandidate& run,
           const GradView& target) {
  if (const std::optional<int> choice = plan_choice(problem); choice && *choice < count) return *choice;
  expect_planning(exec, problem);
  const int best = count == 1 || exec.deterministic ? 0 : fastest(exec, problem, count, run, target);
  const std::lock_guard lock(record().mutex);
  record().choices[problem] = best;
  return best;
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
  const std::lock_guard lock(record().mutex);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream fields(line);
    int choice = -1;
    std::string problem;
    if (!(fields >> choice) || choice < 0 || !std::getline(fields >> std::ws, problem)) {
      throw std::invalid_argument("plan choices: expected lines like '2 matmul ...', got '" + line + "'");
    }
    record().choices[problem] = choice;
  }
}

}  // namespace lockstep::kernels::cuda
