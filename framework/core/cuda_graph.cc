#include "framework/core/cuda_graph.h"

#include "framework/core/context.h"
#include "framework/core/cuda_check.h"
#include "framework/core/error.h"

namespace lockstep {
namespace {

cudaStream_t compute_stream() {
  expect(context().device() == DeviceType::cuda, "graph: expected a current context on a GPU, got one of the CPU");
  return static_cast<cudaStream_t>(context().exec().stream);
}

}  // namespace

void CudaGraph::capture(const std::function<void()>& body) {
  executable_ = nullptr;
  cudaStream_t stream = compute_stream();
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    body();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);  // fails where the capture was what failed
    cudaGetLastError();
    if (graph != nullptr) log_cuda_failure(cudaGraphDestroy(graph), "cudaGraphDestroy");
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagUseNodePriority);
  log_cuda_failure(cudaGraphDestroy(graph), "cudaGraphDestroy");
  check_cuda(status, "cudaGraphInstantiate");
  executable_ = {executable, [](void* old) {
                   log_cuda_failure(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(old)), "cudaGraphExecDestroy");
                 }};
  check_cuda(cudaGraphUpload(executable, stream), "cudaGraphUpload");  // so that the first launch costs no more
}

void CudaGraph::launch() const {
  expect(captured(), "graph: expected a captured one to launch, got an empty one");
  check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_.get()), compute_stream()), "cudaGraphLaunch");
}

}  // namespace lockstep
