// The norm of an arena's gradients and the factor that clips it, both left in device memory.
#pragma once

#include "framework/core/tensor.h"
#include "framework/optim/parameter_arena.h"

namespace lockstep {

class GradientNorm {
 public:
  // max_norm 0: measure only, the factor is 1.
  GradientNorm(const ParameterArena& arena, double max_norm);

  // Adds up the squares of a bucket, whose gradients are complete. Every bucket once, in any order and on any stream.
  void measure(Range bucket);
  // From these sums to the norm and the factor.
  void combine();
  // Both, over the whole arena as it is now.
  void measure();
  // In device memory: min(1, max_norm / norm), for Optimizer::update, and the L2 norm before clipping.
  const double* clip_factor() const { return clip_factor_.view().as<double>(); }
  const double* device_norm() const { return norm_.view().as<double>(); }
  // Waits for the device.
  double norm() const { return norm_.item(); }

 private:
  const ParameterArena& arena_;
  double max_norm_;
  Tensor partials_, norm_, clip_factor_;  // f64
};

}  // namespace lockstep
