// What the ops of one rank run with: device, threads, default element type, scratch memory and the state that random
// numbers are drawn from. Each thread has a current context; a rank is a thread (or process) with one context.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "framework/core/device_value.h"
#include "framework/core/stream.h"
#include "kernels/exec_context.h"
#include "kernels/random.h"
#include "kernels/tensor_view.h"

namespace lockstep {

class GrowingWorkspace;

struct ContextOptions {
  DeviceType device = DeviceType::cpu;
  int gpu = 0;                      // among the visible ones; every context of a process is on the same
  int threads = 1;                  // CPU threads of a kernel
  DType dtype = DType::f32;         // CPU: f32 or f64; GPU: f32 or bf16
  bool allow_tf32 = false;          // GPU, f32: products may round their factors to TF32
  bool deterministic = false;       // GPU: the same bits in every run
  bool programmatic_launch = true;  // GPU that can: kernels are set up while those before them run
};

class Context {
 public:
  // On a GPU it makes the compute stream, on which every op of this context runs. Throws std::invalid_argument where
  // the device is not there.
  explicit Context(const ContextOptions& options);
  explicit Context(DeviceType device = DeviceType::cpu, int threads = 1, DType dtype = DType::f32)
      : Context(ContextOptions{.device = device, .threads = threads, .dtype = dtype}) {}
  // Waits for what its stream holds: the memory of its tensors goes to others.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const ExecContext& exec() const { return exec_; }
  DeviceType device() const { return exec_.device; }
  DType dtype() const { return dtype_; }  // of activations, and of parameters as forward reads them
  // Of parameters as they are initialised, updated and saved, of optimizer state and of running statistics.
  DType master_dtype() const { return statistics_dtype(dtype_); }

  // The host waits for everything that was enqueued; at once on a CPU.
  void synchronize() const;
  // From now on scratch memory stays at its address: a captured step works on it. What needs more gets other memory.
  void keep_workspace();

  // Whether ops may make plans, for which they try algorithms and wait for the GPU. At first they may.
  void allow_planning(bool allowed) { exec_.may_plan = allowed; }

  // Seed, step and first sample, which key every random draw of an op. Set by the training step.
  RandomState random;
  // Where kernels read it: in the memory of the device, always at the same address. Stores `random` there, in stream
  // order, if it has changed: before a captured step is captured or replayed, so that none of its values are part of
  // it.
  const RandomState* device_random();
  // The same for a step that may draw nothing: stores `random` only if device_random() was ever asked for.
  void update_device_random();
  // A number of its own for each op that draws and each tensor that is initialised. Ranks that build the same model get
  // the same numbers, since they ask in the same order.
  std::uint32_t next_random_stream() { return next_random_stream_++; }

 private:
  friend class StreamScope;

  Stream stream_;  // of a GPU
  std::unique_ptr<GrowingWorkspace> workspace_;
  ExecContext exec_;
  DType dtype_;
  DeviceValue<RandomState> device_random_;
  std::optional<RandomState> stored_random_;  // what was stored there last
  std::uint32_t next_random_stream_ = 0;
};

// The calling thread's context: the innermost ContextScope's, else a CPU context of one thread in f32.
Context& context();

// Whether the current context is on a GPU; never in a build without CUDA.
inline bool on_gpu() { return kernels::kHasCuda && context().device() == DeviceType::cuda; }

// Makes the ops of the current context, which is on a GPU, go to another stream until the scope ends. They get no
// workspace, which is the compute stream's: for updates, norms and copies.
class StreamScope {
 public:
  explicit StreamScope(const Stream& stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  Context& context_;
  ExecContext previous_;
};

// Makes `context`, and its GPU, the calling thread's until the scope ends.
class ContextScope {
 public:
  explicit ContextScope(Context& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Context* previous_;
};

}  // namespace lockstep
