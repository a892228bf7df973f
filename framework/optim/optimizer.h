// Optimizers over a parameter arena: one kernel updates any range of it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "framework/core/device_value.h"
#include "framework/core/tensor.h"
#include "framework/optim/parameter_arena.h"
#include "kernels/optimizer.h"

namespace lockstep {

using SgdConfig = kernels::SgdHyperparameters;
using AdamWConfig = kernels::AdamWHyperparameters;
using OptimizerConfig = std::variant<SgdConfig, AdamWConfig>;

class Optimizer {
 public:
  explicit Optimizer(const ParameterArena& arena);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Starts the next step with this learning rate; then every range of the arena is updated once. Of a captured step
  // only the updates are part: this is called before each replay, and what they read is stored in device memory.
  void begin_step(double learning_rate);
  // Updates a range that starts on a chunk. grad_scale, in device memory, multiplies the gradient; null: 1.
  void update(Range range, const double* grad_scale = nullptr);
  // begin_step() and update() of the whole arena.
  void step(double learning_rate);

  // Steps begun since the start of training.
  std::int64_t steps() const { return scalars_.step; }
  void set_steps(std::int64_t steps) { scalars_.step = steps; }
  // Of the step that was begun, in device memory.
  kernels::StepScalars* scalars() const { return device_scalars_.get(); }
  // Says that the device itself counts the step that was begun (kernels/step_report.h): then the next begin_step() has
  // nothing to store where the learning rate stays, which would be a kernel more.
  void counted() { on_device_ = {scalars_.learning_rate, scalars_.step + 1}; }

  // Flat tensors in the layout of the arena, one for each moment ("momentum"), for checkpoints.
  struct State {
    std::string name;
    Tensor values;
  };
  const std::vector<State>& state() const { return state_; }

 protected:
  // The zeroed moments of a subclass, whose views it gets in update_range.
  void add_state(std::string name);
  View state_view(std::size_t i, Range range) const;
  virtual void update_range(const kernels::UpdateRange& update, Range range) = 0;

 private:
  const ParameterArena& arena_;
  std::vector<State> state_;
  kernels::StepScalars scalars_;
  std::optional<kernels::StepScalars> on_device_;  // where it is known before begin_step()
  DeviceValue<kernels::StepScalars> device_scalars_;
};

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const ParameterArena& arena);

}  // namespace lockstep
