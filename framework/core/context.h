// What the ops of one rank run with: device, threads, default element type, scratch memory and the state that random
// numbers are drawn from. Each thread has a current context; a rank is a thread (or process) with one context.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/exec_context.h"
#include "kernels/random.h"
#include "kernels/tensor_view.h"

namespace lockstep {

class Context {
 public:
  explicit Context(DeviceType device = DeviceType::cpu, int threads = 1, DType dtype = DType::f32);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const ExecContext& exec() const { return exec_; }
  DeviceType device() const { return exec_.device; }
  DType dtype() const { return dtype_; }  // of parameters and activations

  // Seed, step and first sample, which key every random draw of an op. Set by the training step.
  RandomState random;
  // A number of its own for each op that draws and each tensor that is initialised. Ranks that build the same model get
  // the same numbers, since they ask in the same order.
  std::uint32_t next_random_stream() { return next_random_stream_++; }

 private:
  std::unique_ptr<Workspace> workspace_;
  ExecContext exec_;
  DType dtype_;
  std::uint32_t next_random_stream_ = 0;
};

// The calling thread's context: the innermost ContextScope's, else a CPU context of one thread in f32.
Context& context();

// Makes `context` the calling thread's until the scope ends.
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
