// Where and with what a kernel runs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

enum class DeviceType : std::uint8_t { cpu, cuda };

// Scratch memory of one stream, lent to one kernel at a time: what a kernel leaves in it is gone after the call.
class Workspace {
 public:
  virtual ~Workspace() = default;
  // At least `bytes`, aligned to 64. Grows in the first steps (the plan phase) and is stable from then on.
  virtual void* reserve(std::size_t bytes) = 0;
};

struct ExecContext {
  DeviceType device = DeviceType::cpu;
  int threads = 1;                 // CPU: threads that a kernel may use
  void* stream = nullptr;          // CUDA: the cudaStream_t that kernels are launched on
  Workspace* workspace = nullptr;  // null on the streams beside: kernels that need one do not run there
  bool allow_tf32 = false;         // CUDA: products of f32 may round their factors to TF32
  // CUDA: the same bits in every run: no algorithm is chosen by timing, none adds in an order that chance decides.
  bool deterministic = false;
  // CUDA: whether a problem that has no plan may get one, which waits for the GPU and must not meet a collective.
  bool may_plan = true;
  // CUDA, compute capability 9.0 or later: a kernel may be set up while the one before it on the stream still runs.
  bool programmatic_launch = false;
};

namespace kernels::cuda {
// Whether the calling thread's GPU can, and the kernels were built for it: they wait for the one before by themselves.
bool can_launch_programmatically();
}  // namespace kernels::cuda

}  // namespace lockstep
